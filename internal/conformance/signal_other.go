//go:build !unix

package conformance

const hasSignals = false

func (p *process) pause() { panic("bug: needSignals") }

func (p *process) resume() { panic("bug: needSignals") }

func pauseSelf() { panic("bug: needSignals") }
