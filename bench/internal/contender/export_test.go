package contender

// CountingHooks are those of a site that wants hooks.
var CountingHooks = countingHooks
