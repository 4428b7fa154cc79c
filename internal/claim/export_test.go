package claim

// Passes returns how often the operations so far have gone through all claims.
func (v *Visit) Passes() int { return v.passes }
