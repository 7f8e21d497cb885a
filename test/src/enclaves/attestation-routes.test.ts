import { describe, expect, it } from 'vitest'
import { ValidationError } from '#src/api/errors.ts'
import { validate } from '#src/api/validation.ts'
import { attestationQuery } from '#src/enclaves/attestation-routes.ts'

const NOTARY = 'a1'.repeat(20)

function faultsOf(run: () => unknown) {
  try {
    run()
  } catch (error) {
    if (error instanceof ValidationError)
      return error.detail.map(({ loc, type }) => [loc.join('.'), type])
    throw error
  }
  return []
}

describe('the query of an attestation', () => {
  it.each(['ab'.repeat(16), `0x${'AB'.repeat(64)}`])(
    'the query of an attestation takes the nonce %s',
    (nonce) => {
      expect(validate('query', attestationQuery, { nonce }).nonce).toBe(
        nonce.toLowerCase().replace('0x', ''),
      )
    },
  )

  it.each([NOTARY, `0x${NOTARY.toUpperCase()}`])(
    'the query of an attestation takes the notary %s',
    (notary) => {
      expect(validate('query', attestationQuery, { notary }).notary).toBe(`0x${NOTARY}`)
    },
  )

  it('the query of an attestation gives nothing for what is not there', () => {
    expect(validate('query', attestationQuery, { other: 'x' })).toEqual({})
  })

  it.each(['', 'ab'.repeat(15), 'ab'.repeat(65), `${'ab'.repeat(16)}a`, 'zz'.repeat(16)])(
    'the query of an attestation refuses the nonce %j',
    (nonce) => {
      expect(faultsOf(() => validate('query', attestationQuery, { nonce }))).toEqual([
        ['query.nonce', 'string_pattern_mismatch'],
      ])
    },
  )

  it.each(['', NOTARY.slice(2), `${NOTARY}00`])(
    'the query of an attestation refuses the notary %j',
    (notary) => {
      expect(faultsOf(() => validate('query', attestationQuery, { notary }))).toEqual([
        ['query.notary', 'string_pattern_mismatch'],
      ])
    },
  )
})
