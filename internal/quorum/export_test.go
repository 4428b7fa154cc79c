package quorum

// Node returns all that a round knows of a node.
func (r *Round) Node(i int) (state uint8, version int64) {
	return uint8(r.nodes[i].state), r.nodes[i].version
}

// CountAbove plants a bug: a node that has answered late counts although its version is above the
// token.
func (r *Round) CountAbove() {
	for i := range r.count {
		if r.nodes[i].state == above {
			r.nodes[i].state = stored
		}
	}
	r.settle()
}
