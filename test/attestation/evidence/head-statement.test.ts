import { expect, it } from 'vitest'
import { decodeHex } from '#attestation/bytes.ts'
import { headAttestationUserData } from '#attestation/evidence/head-attestation.ts'
import { BOOT_CONFIGURATION, digestOf } from './build-evidence.ts'
import { ATTESTED_LOG } from './build-head-attestation.ts'

const statement = {
  configuration: digestOf(BOOT_CONFIGURATION),
  notary: ATTESTED_LOG.notary,
  size: 7,
  root: decodeHex('5a'.repeat(32)),
}

it('headAttestationUserData gives the value that was computed by hand', () => {
  const userData = headAttestationUserData({
    configuration: new Uint8Array(32).fill(0xc0),
    notary: `0x${'ab'.repeat(20)}`,
    size: 17,
    root: new Uint8Array(32).fill(0x0f),
  })
  expect(Buffer.from(userData).toString('hex')).toBe(BY_HAND)
})

it.each([
  ['a configuration of 31 bytes', { configuration: new Uint8Array(31) }],
  ['a root of 33 bytes', { root: new Uint8Array(33) }],
  ['an address in upper case', { notary: `0x${'AB'.repeat(20)}` }],
  ['a size below 0', { size: -1 }],
  ['a size that is not whole', { size: 0.5 }],
  ['a size over 2^53-1', { size: 2 ** 53 }],
])('headAttestationUserData refuses a malformed value: %s', (_, changed) => {
  expect(() => headAttestationUserData({ ...statement, ...changed })).toThrow(
    expect.objectContaining({ code: 'invalid_head_statement' }),
  )
})

// printf '%s' '{"boot_configuration":"c0…","format":…}' | sha256sum, over the text that README.md
// describes.
const BY_HAND = '00b03b8fd48def1b7c8073075509f9abcb371e874d562359b4166b26c0d139eb'
