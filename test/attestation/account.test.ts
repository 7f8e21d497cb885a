import { secp256k1 } from '@noble/curves/secp256k1.js'
import { computeAddress, hashMessage, SigningKey, verifyMessage, Wallet } from 'ethers'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { addressOf, completionDigest, recoverPublicKey } from '#attestation/account.ts'
import { concatBytes, decodeHex, encodeHex } from '#attestation/bytes.ts'
import { verifyCompletionSignature } from '#attestation/completion-signature.ts'
import { codeOf } from './code-of.ts'

const wallet = new Wallet(`0x${'17'.repeat(32)}`)
const publicKey = decodeHex(wallet.signingKey.publicKey)
const hash = decodeHex('ab'.repeat(32))
const signature = decodeHex(wallet.signMessageSync(hash))
const order = secp256k1.Point.CURVE().n

it('addressOf gives the address that ethers computes, in lower case', () => {
  for (const byte of [1, 2, 3, 0x7f, 0xfe]) {
    const key = new SigningKey(new Uint8Array(32).fill(byte))
    expect(addressOf(decodeHex(key.publicKey))).toBe(computeAddress(key).toLowerCase())
  }
})

it.each([
  ['a compressed point', decodeHex(wallet.signingKey.compressedPublicKey)],
  ['a point without its first byte', publicKey.slice(1)],
  ['a byte too many', concatBytes(publicKey, new Uint8Array(1))],
  ['a hybrid point', concatBytes(new Uint8Array([6]), publicKey.slice(1))],
  [
    'a point off the curve',
    concatBytes(publicKey.slice(0, 64), new Uint8Array([(publicKey[64] ?? 0) ^ 1])),
  ],
  ['coordinates over the field', concatBytes(new Uint8Array([4]), new Uint8Array(64).fill(255))],
  ['zeros', concatBytes(new Uint8Array([4]), new Uint8Array(64))],
  ['nothing', new Uint8Array()],
])('addressOf refuses what is no uncompressed public key: %s', (_, key) => {
  expect(codeOf(() => addressOf(key))).toBe('invalid_public_key')
})

it('completionDigest gives the digest that ethers signs for the 32 raw bytes', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 32, maxLength: 32 }), (bytes) => {
      expect(`0x${encodeHex(completionDigest(bytes))}`).toBe(hashMessage(bytes))
    }),
  )
})

it('completionDigest refuses a hash of another length', () => {
  for (const length of [0, 31, 33, 64])
    expect(codeOf(() => completionDigest(new Uint8Array(length)))).toBe('invalid_hash')
})

it('verifyCompletionSignature accepts what ethers signs and names the account that ethers recovers', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 32, maxLength: 32 }), (bytes) => {
      const signed = wallet.signMessageSync(bytes)
      const facts = verifyCompletionSignature({
        hash: bytes,
        signature: decodeHex(signed),
        publicKey,
      })
      expect(facts).toEqual({ address: verifyMessage(bytes, signed).toLowerCase(), lowS: true })
    }),
    { numRuns: 25 },
  )
})

it('a signature with high s is refused, although ethers would recover the same account from it', () => {
  const r = signature.slice(0, 32)
  const highS = decodeHex(
    (order - BigInt(`0x${encodeHex(signature.slice(32, 64))}`)).toString(16).padStart(64, '0'),
  )
  const twin = concatBytes(r, highS, new Uint8Array([signature[64] === 27 ? 28 : 27]))
  expect(codeOf(() => verifyCompletionSignature({ hash, signature: twin, publicKey }))).toBe(
    'high_s',
  )
})

it.each([
  ['64 bytes', signature.slice(0, 64)],
  ['66 bytes', concatBytes(signature, new Uint8Array(1))],
  ['nothing', new Uint8Array()],
  ['v of 0', withLast(0)],
  ['v of 1', withLast(1)],
  ['v of 26', withLast(26)],
  ['v of 29', withLast(29)],
  ['v of 37, as EIP-155 would have it', withLast(37)],
  ['r of 0', concatBytes(new Uint8Array(32), signature.slice(32))],
  ['s of 0', concatBytes(signature.slice(0, 32), new Uint8Array(32), signature.slice(64))],
  ['r of the order', concatBytes(bigBytes(order), signature.slice(32))],
  ['s of the order', concatBytes(signature.slice(0, 32), bigBytes(order), signature.slice(64))],
])('verifyCompletionSignature refuses a malformed signature: %s', (_, malformed) => {
  expect(codeOf(() => verifyCompletionSignature({ hash, signature: malformed, publicKey }))).toBe(
    'invalid_signature',
  )
})

it('a signature is refused when its r is the x coordinate of no point', () => {
  // x³ + 7 is not a square for x = 5.
  const malformed = concatBytes(bigBytes(5n), signature.slice(32))
  expect(codeOf(() => verifyCompletionSignature({ hash, signature: malformed, publicKey }))).toBe(
    'unrecoverable',
  )
})

it('a signature of another account or another hash, or with the other v, is refused', () => {
  const other = decodeHex(new Wallet(`0x${'18'.repeat(32)}`).signingKey.publicKey)
  const otherHash = decodeHex('ac'.repeat(32))
  const otherV = withLast(signature[64] === 27 ? 28 : 27)
  for (const signed of [
    { hash, signature, publicKey: other },
    { hash: otherHash, signature, publicKey },
    { hash, signature: otherV, publicKey },
  ])
    expect(codeOf(() => verifyCompletionSignature(signed))).toBe('wrong_signer')
})

it('verifyCompletionSignature does not detect that a key belongs to no enclave', () => {
  const anyone = Wallet.createRandom()
  const signed = {
    hash,
    signature: decodeHex(anyone.signMessageSync(hash)),
    publicKey: decodeHex(anyone.signingKey.publicKey),
  }
  expect(verifyCompletionSignature(signed).address).toBe(anyone.address.toLowerCase())
})

it('recoverPublicKey gives the key that signed', () => {
  expect(recoverPublicKey({ digest: completionDigest(hash), signature })).toEqual(publicKey)
})

function withLast(v: number): Uint8Array {
  return concatBytes(signature.slice(0, 64), new Uint8Array([v]))
}

function bigBytes(value: bigint): Uint8Array {
  return decodeHex(value.toString(16).padStart(64, '0'))
}
