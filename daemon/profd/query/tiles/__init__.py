"""Tiles: what can be seen of a timeline, and nothing else.

Events lie on lanes: calls of a thread on one for each depth, work of a device, ranges that nest in nothing, and marks
without a duration on one each (`lanes`). A pixel is a power of two of ns. An event is a box if it is a pixel long, or
begins a pixel after whatever came before it on its lane; what is left is counted in cells, each a pixel of a lane
(`seen`). Both depend on no window, so that they can be worked out beforehand (`pyramid`) and kept beside the trace
(`kept`), and so are names and where they are (`named`). `answer` puts it together: the question `tiles`.
"""
