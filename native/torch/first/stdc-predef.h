// Empty. A compiler includes a file of this name before all others, and takes the first that is found: without ours it
// could be one of torch's folder, or a precompiled one (.gch) there, which gcc loads as it is into its own memory.
