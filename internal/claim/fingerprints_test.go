package claim_test

// fingerprints is a set of hashes. It has positions for twice as many, or more.
type fingerprints struct {
	slots []uint64
	n     int
}

// add reports false if a hash is there already.
func (f *fingerprints) add(h uint64) bool {
	if f.n*2 >= len(f.slots) {
		f.grow()
	}
	if !f.put(h) {
		return false
	}
	f.n++
	return true
}

func (f *fingerprints) put(h uint64) bool {
	h = max(h, 1) // 0 is an empty place
	mask := uint64(len(f.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch f.slots[i] {
		case 0:
			f.slots[i] = h
			return true
		case h:
			return false
		}
	}
}

func (f *fingerprints) grow() {
	old := f.slots
	f.slots = make([]uint64, max(1<<12, 2*len(old)))
	for _, h := range old {
		if h != 0 {
			f.put(h)
		}
	}
}
