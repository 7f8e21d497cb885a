import { expect, it } from 'vitest'
import { ValidationError } from '#src/api/errors.ts'
import { validate } from '#src/api/validation.ts'
import { attestationQuery } from '#src/enclaves/attestation-routes.ts'

const NOTARY = 'a1'.repeat(20)

it.each([
  [{ nonce: 'ab'.repeat(16) }, { nonce: 'ab'.repeat(16) }],
  [{ nonce: `0x${'AB'.repeat(64)}`, other: 'x' }, { nonce: 'ab'.repeat(64) }],
  [{ notary: NOTARY }, { notary: `0x${NOTARY}` }],
  [{ notary: `0x${NOTARY.toUpperCase()}` }, { notary: `0x${NOTARY}` }],
])('the query of an attestation %j is read as %j', (query, expected) => {
  expect(validate('query', attestationQuery, query)).toEqual(expected)
})

it.each([
  ...['', 'ab'.repeat(15), 'ab'.repeat(65), `${'ab'.repeat(16)}a`, 'zz'.repeat(16)].map(
    (nonce) => ({ nonce }),
  ),
  ...['', NOTARY.slice(2), `${NOTARY}00`].map((notary) => ({ notary })),
])('the query of an attestation refuses %j', (query) => {
  const [name] = Object.keys(query)
  expect(() => validate('query', attestationQuery, query)).toThrow(
    expect.objectContaining({
      constructor: ValidationError,
      detail: [expect.objectContaining({ loc: ['query', name], type: 'string_pattern_mismatch' })],
    }),
  )
})
