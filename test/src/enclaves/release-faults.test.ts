import { describe, expect, it } from 'vitest'
import { decodeHex } from '../../../attestation/bytes.ts'
import { findReleaseFault } from '../../../src/enclaves/release-faults.ts'
import { entryNamed } from '../../support/enclave-fleet.ts'

const at = (text: string) => Date.parse(text)
const NOW = at('2026-06-01T12:00:00Z')
const factsOf = (name: string, timestampMs = NOW) => {
  const register = decodeHex(name.repeat(48))
  return { timestampMs, measurements: new Map([0, 1, 2].map((index) => [index, register])) }
}

describe('findReleaseFault', () => {
  it('finds none with the measurements of a release that is accepted', () => {
    expect(findReleaseFault(factsOf('a1'), [entryNamed('a2'), entryNamed('a1')], NOW)).toBeNull()
  })

  it('names the image of an enclave that is of no release', () => {
    expect(findReleaseFault(factsOf('bb'), [entryNamed('a1')], NOW)).toContain(`PCR0 ${'bb'.repeat(48)}`)
    expect(findReleaseFault(factsOf('bb'), [], NOW)).not.toBeNull()
  })

  it('needs every register of one release', () => {
    const facts = factsOf('a1')
    const mixed = {
      ...facts,
      measurements: new Map([...facts.measurements, [2, decodeHex('a2'.repeat(48))]]),
    }
    expect(findReleaseFault(mixed, [entryNamed('a1'), entryNamed('a2')], NOW)).not.toBeNull()
  })

  it.each([
    ['revoked', { revoked: { at: '2026-05-01T00:00:00Z', reason: 'weak' } }, 'was revoked'],
    ['expired at this moment', { accepted_until: '2026-06-01T12:00:00Z' }, 'was accepted until'],
    ['not accepted yet', { accepted_from: '2026-06-01T12:00:01Z' }, 'is accepted from'],
  ])('refuses a release that is %s', (_, over, words) => {
    expect(findReleaseFault(factsOf('a1'), [entryNamed('a1', over)], NOW)).toContain(words)
  })

  it('refuses a document of before its release was accepted, which readers of its records would refuse', () => {
    const entries = [entryNamed('a1', { accepted_from: '2026-06-01T11:00:00Z' })]
    const old = factsOf('a1', at('2026-06-01T10:59:59Z'))
    expect(findReleaseFault(old, entries, NOW)).toContain('expected a document made while')
    expect(findReleaseFault(factsOf('a1', at('2026-06-01T11:00:00Z')), entries, NOW)).toBeNull()
  })
})
