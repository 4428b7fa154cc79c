package sqllock

import "encoding/binary"

// quorumValue is what a node keeps as the value of a term: the text of the holder behind a head
// that tells which of the values that nodes have is the newest, and the token.
type quorumValue struct {
	token int64 // 0 in the first request for the name: it is not known yet
	seq   uint32
	text  []byte
}

const quorumValueHead = 12 // bytes

func (v quorumValue) bytes() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, quorumValueHead+len(v.text)), uint64(v.token))
	return append(binary.BigEndian.AppendUint32(b, v.seq), v.text...)
}

// parseQuorumValue reports false if b is not such a value. Rows that are listed have none.
func parseQuorumValue(b []byte) (v quorumValue, ok bool) {
	if len(b) < quorumValueHead {
		return v, false
	}
	v.token = int64(binary.BigEndian.Uint64(b))
	v.seq = binary.BigEndian.Uint32(b[8:])
	if v.text = b[quorumValueHead:]; len(v.text) == 0 {
		v.text = nil
	}
	return v, true
}
