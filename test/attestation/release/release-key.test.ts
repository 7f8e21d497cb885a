import { ed25519 } from '@noble/curves/ed25519.js'
import { sha512 } from '@noble/hashes/sha2.js'
import { expect, it } from 'vitest'
import { concatBytes, decodeHex, encodeHex } from '#attestation/bytes.ts'
import {
  parseReleaseKey,
  releaseKeyOf,
  signBytes,
  verifyBytes,
} from '#attestation/release/release-signatures.ts'
import { faultOf } from './release-vectors.ts'

/** RFC 8032 section 7.1, TEST 1 to 3: secret, public, message, signature. */
const RFC_8032 = [
  [
    '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60',
    'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a',
    '',
    'e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b',
  ],
  [
    '4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb',
    '3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c',
    '72',
    '92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00',
  ],
  [
    'c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7',
    'fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025',
    'af82',
    '6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a',
  ],
] as const

/**
 * The eight points of small order in their one encoding, and the other encodings of those that have
 * one.
 */
const SMALL_ORDER = [
  '0100000000000000000000000000000000000000000000000000000000000000',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  '0000000000000000000000000000000000000000000000000000000000000000',
  '0000000000000000000000000000000000000000000000000000000000000080',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85',
]
const NOT_CANONICAL = [
  '0100000000000000000000000000000000000000000000000000000000000080',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',
  'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',
  'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',
]

const [secretHex, publicHex] = RFC_8032[0]
const secretKey = decodeHex(secretHex)
const publicKey = decodeHex(publicHex)
const GROUP_ORDER = ed25519.Point.Fn.ORDER

/** A number as Ed25519 writes it: little-endian, 32 bytes. */
function encodeScalar(value: bigint): Uint8Array {
  return Uint8Array.from({ length: 32 }, (_, index) => Number((value >> BigInt(8 * index)) & 0xffn))
}

function decodeScalar(bytes: Uint8Array): bigint {
  return bytes.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n)
}

it.each(RFC_8032)(
  'signing gives the public key and signature of RFC 8032: %s',
  (secret, key, message, signature) => {
    expect(encodeHex(releaseKeyOf(decodeHex(secret)))).toBe(key)
    expect(encodeHex(signBytes(decodeHex(message), decodeHex(secret)))).toBe(signature)
    const given = { message: decodeHex(message), publicKey: parseReleaseKey(key) }
    expect(verifyBytes(decodeHex(signature), given)).toBe(true)
  },
)

it.each([
  ['no hex', 'x'.repeat(64)],
  ['upper case', publicHex.toUpperCase()],
  ['a prefix', `0x${publicHex}`],
  ['a byte too few', publicHex.slice(2)],
  ['a byte too many', `${publicHex}00`],
  ['no point', `02${'00'.repeat(31)}`],
  ...SMALL_ORDER.map((key) => ['a point of small order', key]),
  ...NOT_CANONICAL.map((key) => ['a second encoding of a point', key]),
])('a release key is refused when it is %s: %s', (_, key) => {
  expect(faultOf(() => parseReleaseKey(key))?.code).toBe('invalid_release_key')
})

it('a point of mixed order, which verifiers read differently, is refused as a release key', () => {
  const torsion = ed25519.Point.fromHex(SMALL_ORDER[4] ?? '')
  const mixed = ed25519.Point.fromHex(publicHex).add(torsion)
  expect(faultOf(() => parseReleaseKey(mixed.toHex()))?.code).toBe('invalid_release_key')
})

const message = new TextEncoder().encode('a message')
const signature = signBytes(message, secretKey)

it('a signature is refused when a bit of signature, message or key is flipped', () => {
  for (const bit of [0, 255, 256, 511]) {
    const [text, key] = [flipBit(message, bit % 72), flipBit(publicKey, bit % 256)]
    expect(verifyBytes(flipBit(signature, bit), { message, publicKey })).toBe(false)
    expect(verifyBytes(signature, { message: text, publicKey })).toBe(false)
    expect(verifyBytes(signature, { message, publicKey: key })).toBe(false)
  }
})

it.each([0, 63, 65])('a signature of %i bytes is refused', (length) => {
  const other = Uint8Array.from({ length }, (_, index) => signature[index] ?? 0)
  expect(verifyBytes(other, { message, publicKey })).toBe(false)
})

it('a signature with the group order added to S is refused', () => {
  const twin = encodeScalar(decodeScalar(signature.subarray(32)) + GROUP_ORDER)
  expect(verifyBytes(concatBytes(signature.subarray(0, 32), twin), { message, publicKey })).toBe(
    false,
  )
})

it.each([...SMALL_ORDER, ...NOT_CANONICAL])(
  'a signature with R of small order and S = 0 is refused: %s',
  (point) => {
    const forged = concatBytes(decodeHex(point), new Uint8Array(32))
    expect(verifyBytes(forged, { message, publicKey: decodeHex(point) })).toBe(false)
    expect(verifyBytes(forged, { message, publicKey })).toBe(false)
  },
)

it('a signature with a hidden point of small order in R is refused', () => {
  const torsion = ed25519.Point.fromHex(SMALL_ORDER[4] ?? '')
  const { scalar } = ed25519.utils.getExtendedPublicKey(secretKey)
  const nonce = 12_345n
  const r = ed25519.Point.BASE.multiply(nonce).add(torsion).toBytes()
  const challenge = decodeScalar(sha512(concatBytes(r, publicKey, message))) % GROUP_ORDER
  const crafted = concatBytes(r, encodeScalar((nonce + challenge * scalar) % GROUP_ORDER))
  expect(ed25519.verify(crafted, message, publicKey, { zip215: false })).toBe(true)
  expect(verifyBytes(crafted, { message, publicKey })).toBe(false)
})

function flipBit(bytes: Uint8Array, bit: number): Uint8Array {
  return bytes.map((byte, index) => (index === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte))
}
