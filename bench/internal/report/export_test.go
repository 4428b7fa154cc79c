package report

// Verdict is that of a goal with these bounds.
func Verdict(atLeast bool, must, aim, value float64) string {
	return goal{atLeast: atLeast, must: must, aim: aim}.verdict(value)
}
