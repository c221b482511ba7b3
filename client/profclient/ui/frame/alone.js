// @ts-check
// Before Perfetto: it keeps the last ten traces in the browser's caches for a week, on disk. Where there are no caches
// it keeps none.

Object.defineProperty(window, "caches", { value: undefined });
