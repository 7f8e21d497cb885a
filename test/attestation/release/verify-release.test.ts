import canonicalize from 'canonicalize'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { FormatError, ProofError } from '#attestation/errors.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseSignedRelease, RELEASE_FORMAT, type Release } from '#attestation/release/release.ts'
import { parseSignedReleaseList, RELEASES_FORMAT } from '#attestation/release/release-list.ts'
import { SIGNATURES_MAX, signedBytes } from '#attestation/release/release-signatures.ts'
import {
  signRelease,
  signReleaseList,
  verifyRelease,
  verifyReleaseList,
} from '#attestation/release/verify-release.ts'
import { buildRelease } from '../../support/build-release.ts'
import { mutatedAt, placesIn, replaceAt, valueAt } from '../mutate-json.ts'
import {
  faultOf,
  LIST_JSON,
  LIST_MESSAGE,
  PUBLIC_KEYS,
  RELEASE_JSON,
  RELEASE_MESSAGE,
  SECRET_KEYS,
  SIGNED_LIST,
  SIGNED_RELEASE,
} from './release-vectors.ts'

const [first = new Uint8Array(), second = new Uint8Array()] = PUBLIC_KEYS
const [firstSecret = new Uint8Array(), secondSecret = new Uint8Array()] = SECRET_KEYS
const strangerSecret = new Uint8Array(32).fill(7)

it('the signed bytes are the format, a zero byte and canonical JSON, as OpenSSL signed them', () => {
  expect(encodeHex(signedBytes(RELEASE_FORMAT, SIGNED_RELEASE.release))).toBe(RELEASE_MESSAGE)
  expect(encodeHex(signedBytes(RELEASES_FORMAT, SIGNED_LIST.list))).toBe(LIST_MESSAGE)
  const text = `affidavit-release/v1\0${canonicalize(RELEASE_JSON.release)}`
  expect(RELEASE_MESSAGE).toBe(Buffer.from(text).toString('hex'))
})

it('signRelease and signReleaseList give the very signatures that OpenSSL gave', () => {
  const once = signRelease(SIGNED_RELEASE.release, firstSecret)
  expect(signRelease(once.release, secondSecret, once.signatures)).toEqual(SIGNED_RELEASE)
  expect(signReleaseList(SIGNED_LIST.list, firstSecret)).toEqual(SIGNED_LIST)
})

it('the order of members in the file does not change what is signed', () => {
  const reversed = Object.fromEntries(Object.entries(RELEASE_JSON.release as JsonObject).reverse())
  const { signers } = verifyRelease(parseSignedRelease({ ...RELEASE_JSON, release: reversed }), {
    keys: [first],
  })
  expect(signers).toEqual([encodeHex(first)])
})

it('a release is verified with one of the trusted keys, and the signers are named', () => {
  const verified = verifyRelease(SIGNED_RELEASE, { keys: [second, first] })
  expect(verified).toEqual({
    release: SIGNED_RELEASE.release,
    signers: [encodeHex(first), encodeHex(second)],
  })
  expect(verifyRelease(SIGNED_RELEASE, { keys: [second] }).signers).toEqual([encodeHex(second)])
})

it('any release that was signed is verified', () => {
  fc.assert(
    fc.property(
      fc.stringMatching(/^[0-9A-Za-z.+-]{1,64}$/),
      fc.dictionary(fc.stringMatching(/^[\x21-\x7e]{1,200}$/), fc.constant('ab'.repeat(32)), {
        maxKeys: 20,
      }),
      (version, inputs) => {
        const release: Release = buildRelease({ version, inputs })
        const json = JSON.parse(JSON.stringify(signRelease(release, firstSecret)))
        expect(verifyRelease(parseSignedRelease(json), { keys: [first] }).release).toEqual(release)
      },
    ),
    { numRuns: 25 },
  )
})

it('a release needs as many different trusted signers as the trust asks for', () => {
  expect(verifyRelease(SIGNED_RELEASE, { keys: PUBLIC_KEYS, signersMin: 2 }).signers).toHaveLength(
    2,
  )
  const once = signRelease(SIGNED_RELEASE.release, firstSecret)
  expect(faultOf(() => verifyRelease(once, { keys: PUBLIC_KEYS, signersMin: 2 }))?.code).toBe(
    'release_not_signed',
  )
})

it.each([
  ['no key', { keys: [] }],
  ['more signers than keys', { keys: [first], signersMin: 2 }],
  ['more signers than different keys', { keys: [first, first], signersMin: 2 }],
  ['no signers', { keys: [first], signersMin: 0 }],
  ['a key that is no point', { keys: [new Uint8Array(32).fill(2)] }],
  ['a key of small order', { keys: [new Uint8Array(32)] }],
  ['a key of another length', { keys: [new Uint8Array(31)] }],
])('a release is never verified by a trust of %s', (_, trust) => {
  expect(faultOf(() => verifyRelease(SIGNED_RELEASE, trust))?.code).toBe('invalid_release_key')
})

it('a release that only strangers signed is refused', () => {
  const strange = signRelease(SIGNED_RELEASE.release, strangerSecret)
  expect(faultOf(() => verifyRelease(strange, { keys: PUBLIC_KEYS }))?.code).toBe(
    'release_not_signed',
  )
})

it('a release that a stranger signed in the name of a trusted key is refused', () => {
  const [strange] = signRelease(SIGNED_RELEASE.release, strangerSecret).signatures
  const forged = {
    ...SIGNED_RELEASE,
    signatures: [{ public_key: encodeHex(first), signature: strange?.signature ?? '' }],
  }
  expect(faultOf(() => verifyRelease(forged, { keys: [first] }))?.code).toBe('release_signature')
})

it('a release with a wrong signature of a trusted key is refused, even beside a right signature', () => {
  const [one, two] = SIGNED_RELEASE.signatures
  const spoiled = { public_key: two?.public_key ?? '', signature: one?.signature ?? '' }
  const signatures = one === undefined ? [] : [one, spoiled]
  const given = { ...SIGNED_RELEASE, signatures }
  expect(faultOf(() => verifyRelease(given, { keys: PUBLIC_KEYS }))?.code).toBe('release_signature')
  // Of a key that is not trusted, anything may stand there.
  expect(verifyRelease(given, { keys: [first] }).signers).toEqual([encodeHex(first)])
})

it(`a release takes up to ${SIGNATURES_MAX} signatures, and a new one of a key replaces its old one`, () => {
  let signed = signRelease(SIGNED_RELEASE.release, firstSecret)
  for (let at = 0; at < SIGNATURES_MAX; at++)
    signed = signRelease(signed.release, firstSecret, signed.signatures)
  expect(signed.signatures).toHaveLength(1)
  for (let at = 1; at < SIGNATURES_MAX; at++)
    signed = signRelease(signed.release, new Uint8Array(32).fill(at), signed.signatures)
  expect(parseSignedRelease(signed as unknown as Json).signatures).toHaveLength(SIGNATURES_MAX)
  expect(
    faultOf(() => signRelease(signed.release, new Uint8Array(32).fill(99), signed.signatures))
      ?.code,
  ).toBe('invalid_release')
})

const anotherOf = (value: Json): Json => {
  if (typeof value !== 'string') return 'other'
  if (/^\d{4}-/.test(value)) return '2031-01-01T00:00:00Z'
  if (value === 'x86_64') return 'aarch64'
  return value.replace(/.$/, (last) => (last === '0' ? '1' : '0'))
}
const leaves = (json: JsonObject, member: string) =>
  placesIn(json)
    .filter(([top]) => top === member)
    .filter((path) => typeof valueAt(json, path) === 'string')

it.each(leaves(RELEASE_JSON, 'release').map((path) => [path.join('.'), path] as const))(
  'another well-formed value of %s in a signed release is refused at the signature',
  (_, path) => {
    const changed = parseSignedRelease(
      replaceAt(RELEASE_JSON, path, anotherOf(valueAt(RELEASE_JSON, path))),
    )
    expect(faultOf(() => verifyRelease(changed, { keys: [first] }))?.code).toBe('release_signature')
  },
)

it.each(leaves(LIST_JSON, 'list').map((path) => [path.join('.'), path] as const))(
  'another well-formed value of %s in a signed list is refused at the signature',
  (_, path) => {
    const changed = parseSignedReleaseList(
      replaceAt(LIST_JSON, path, anotherOf(valueAt(LIST_JSON, path))),
    )
    expect(faultOf(() => verifyReleaseList(changed, { keys: [first] }))?.code).toBe(
      'release_signature',
    )
  },
)

it('a changed list cannot take a revocation, an entry or an end back', () => {
  const [current, ending, gone] = SIGNED_LIST.list.releases
  if (current === undefined || ending === undefined || gone === undefined)
    throw new Error('expected three')
  for (const releases of [
    [current, ending, { ...gone, revoked: null }],
    [current, { ...ending, accepted_until: null }, gone],
    [current, ending],
    [ending, current, gone],
  ]) {
    const changed = { ...SIGNED_LIST, list: { ...SIGNED_LIST.list, releases } }
    expect(faultOf(() => verifyReleaseList(changed, { keys: [first] }))?.code).toBe(
      'release_signature',
    )
  }
})

it('a changed release is refused by one of our errors or says the same', () => {
  fc.assert(
    fc.property(mutatedAt(RELEASE_JSON, []), (json) => {
      try {
        const { release } = verifyRelease(parseSignedRelease(json), { keys: [first] })
        expect(canonicalizeJson(release)).toBe(canonicalizeJson(SIGNED_RELEASE.release))
      } catch (fault) {
        if (!(fault instanceof FormatError) && !(fault instanceof ProofError)) throw fault
      }
    }),
    { numRuns: 300 },
  )
})

it('a signature of one format does not pass for one of the other format', () => {
  const [signature] = SIGNED_LIST.signatures
  const release = SIGNED_RELEASE.release
  const crossed = { ...SIGNED_RELEASE, signatures: signature === undefined ? [] : [signature] }
  expect(faultOf(() => verifyRelease(crossed, { keys: [first] }))?.code).toBe('release_signature')
  expect(encodeHex(signedBytes(RELEASE_FORMAT, release))).not.toBe(
    encodeHex(signedBytes(RELEASES_FORMAT, release)),
  )
})
