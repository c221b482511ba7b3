// Compiles where native/gpu/cupti_abi.h agrees with the headers of a CUDA toolkit (tests/unit/profclient/gpu/test_layout.py).
#include <cstddef>

#include <cupti.h>

#include "cupti_abi.h"

using namespace profd::cupti;
#define SAME(type, member, ours) static_assert(offsetof(type, member) == (ours), #type "." #member)
#if CUPTI_API_VERSION >= 130000
using K = CUpti_ActivityKernel10;
#else
using K = CUpti_ActivityKernel9;
#endif
SAME(K, registersPerThread, kernel::kRegisters); SAME(K, start, kernel::kStart); SAME(K, end, kernel::kEnd);
SAME(K, deviceId, kernel::kDevice); SAME(K, contextId, kernel::kContext); SAME(K, streamId, kernel::kStream);
SAME(K, gridX, kernel::kGrid); SAME(K, blockX, kernel::kBlock); SAME(K, blockZ, kernel::kBlock + 8); SAME(K, gridZ, kernel::kGrid + 8);
SAME(K, staticSharedMemory, kernel::kStaticShared); SAME(K, dynamicSharedMemory, kernel::kDynamicShared);
SAME(K, correlationId, kernel::kCorrelation); SAME(K, name, kernel::kName); SAME(K, graphNodeId, kernel::kGraphNode); SAME(K, graphId, kernel::kGraph);
using C = CUpti_ActivityMemcpy6;
SAME(C, copyKind, profd::cupti::copy::kKind); SAME(C, bytes, profd::cupti::copy::kBytes); SAME(C, start, profd::cupti::copy::kStart); SAME(C, end, profd::cupti::copy::kEnd);
SAME(C, deviceId, profd::cupti::copy::kDevice); SAME(C, contextId, profd::cupti::copy::kContext); SAME(C, streamId, profd::cupti::copy::kStream);
SAME(C, correlationId, profd::cupti::copy::kCorrelation); SAME(C, graphNodeId, profd::cupti::copy::kGraphNode); SAME(C, graphId, profd::cupti::copy::kGraph);
using P = CUpti_ActivityMemcpyPtoP4;
SAME(P, copyKind, profd::cupti::copy::kKind); SAME(P, bytes, profd::cupti::copy::kBytes); SAME(P, start, profd::cupti::copy::kStart); SAME(P, deviceId, profd::cupti::copy::kDevice); SAME(P, streamId, profd::cupti::copy::kStream);
SAME(P, correlationId, peer_copy::kCorrelation); SAME(P, graphNodeId, peer_copy::kGraphNode); SAME(P, graphId, peer_copy::kGraph);
using M = CUpti_ActivityMemset4;
SAME(M, bytes, set::kBytes); SAME(M, start, set::kStart); SAME(M, end, set::kEnd); SAME(M, deviceId, set::kDevice); SAME(M, contextId, set::kContext); SAME(M, streamId, set::kStream); SAME(M, correlationId, set::kCorrelation); SAME(M, graphNodeId, set::kGraphNode); SAME(M, graphId, set::kGraph);
using A = CUpti_ActivityAPI;
SAME(A, cbid, call::kId); SAME(A, start, call::kStart); SAME(A, end, call::kEnd); SAME(A, threadId, call::kThread); SAME(A, correlationId, call::kCorrelation); SAME(A, returnValue, call::kReturned);
using S = CUpti_ActivitySynchronization2;
SAME(S, type, profd::cupti::sync::kType); SAME(S, start, profd::cupti::sync::kStart); SAME(S, end, profd::cupti::sync::kEnd); SAME(S, correlationId, profd::cupti::sync::kCorrelation); SAME(S, contextId, profd::cupti::sync::kContext); SAME(S, streamId, profd::cupti::sync::kStream);
using G = CUpti_ActivityGraphTrace2;
SAME(G, correlationId, graph::kCorrelation); SAME(G, start, graph::kStart); SAME(G, end, graph::kEnd); SAME(G, deviceId, graph::kDevice); SAME(G, graphId, graph::kGraph); SAME(G, contextId, graph::kContext); SAME(G, streamId, graph::kStream);
using O = CUpti_ActivityOverhead3;
SAME(O, overheadKind, overhead::kKind); SAME(O, objectId.pt.threadId, overhead::kThread); SAME(O, start, overhead::kStart); SAME(O, end, overhead::kEnd);
using E = CUpti_ActivityExternalCorrelation;
SAME(E, externalKind, external::kKind); SAME(E, externalId, external::kId); SAME(E, correlationId, external::kCorrelation);
static_assert((int)Activity::ExternalCorrelation == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION && kExternalCustom2 == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2);
static_assert(kNotCompatible == CUPTI_ERROR_NOT_COMPATIBLE && kVirtualized == CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED && kVirtualizedNoPrivilege == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES && kConfidential == CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED && kMining == CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED && kMig == CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED && kWsl == CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED);
static_assert((int)Activity::Memcpy == CUPTI_ACTIVITY_KIND_MEMCPY && (int)Activity::Memset == CUPTI_ACTIVITY_KIND_MEMSET && (int)Activity::Driver == CUPTI_ACTIVITY_KIND_DRIVER && (int)Activity::Runtime == CUPTI_ACTIVITY_KIND_RUNTIME && (int)Activity::Kernel == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && (int)Activity::Overhead == CUPTI_ACTIVITY_KIND_OVERHEAD && (int)Activity::MemcpyPeer == CUPTI_ACTIVITY_KIND_MEMCPY2 && (int)Activity::Synchronization == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION && (int)Activity::GraphTrace == CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
static_assert(kOtherSubscriber == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && kNoPrivilege == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES && kNotInitialized == CUPTI_ERROR_NOT_INITIALIZED);
static_assert(kAttributeZeroedBuffers == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER && kThreadIdsOfSystem == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM && kDomainDriver == CUPTI_CB_DOMAIN_DRIVER_API && kDomainRuntime == CUPTI_CB_DOMAIN_RUNTIME_API);
#if CUPTI_API_VERSION >= 130000
static_assert(sizeof(CUpti_SubscriberParams) >= sizeof(SubscriberParams) && offsetof(CUpti_SubscriberParams, oldSubscriberSize) == offsetof(SubscriberParams, old_name_bytes));
#endif
