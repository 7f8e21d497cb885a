import { describe, expect, it } from 'vitest'
import { ValidationError } from '../../../src/api/errors.ts'
import { parseAttestationQuery } from '../../../src/enclaves/attestation-query.ts'

const NOTARY = 'a1'.repeat(20)

function faultsOf(run: () => unknown) {
  try {
    run()
  } catch (error) {
    if (error instanceof ValidationError) return error.detail.map(({ loc, type }) => [loc.join('.'), type])
    throw error
  }
  return []
}

describe('parseAttestationQuery', () => {
  it.each(['ab'.repeat(16), `0x${'AB'.repeat(64)}`])('takes the nonce %s', (nonce) => {
    expect(parseAttestationQuery({ nonce }).nonce).toBe(nonce.toLowerCase().replace('0x', ''))
  })

  it.each([NOTARY, `0x${NOTARY.toUpperCase()}`])('takes the notary %s', (notary) => {
    expect(parseAttestationQuery({ notary }).notary).toBe(`0x${NOTARY}`)
  })

  it('gives null for what is not there', () => {
    expect(parseAttestationQuery({ other: 'x' })).toEqual({ nonce: null, notary: null })
  })

  it.each(['', 'ab'.repeat(15), 'ab'.repeat(65), `${'ab'.repeat(16)}a`, 'zz'.repeat(16)])(
    'refuses the nonce %j',
    (nonce) => {
      expect(faultsOf(() => parseAttestationQuery({ nonce }))).toEqual([
        ['query.nonce', 'string_pattern_mismatch'],
      ])
    },
  )

  it.each(['', NOTARY.slice(2), `${NOTARY}00`])('refuses the notary %j', (notary) => {
    expect(faultsOf(() => parseAttestationQuery({ notary }))).toEqual([
      ['query.notary', 'string_pattern_mismatch'],
    ])
  })
})
