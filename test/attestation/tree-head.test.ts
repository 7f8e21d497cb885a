import { TypedDataEncoder, verifyTypedData, Wallet } from 'ethers'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { type LogDomain, treeHeadDigest, verifyTreeHead } from '#attestation/tree-head.ts'
import { codeOf } from './code-of.ts'
import { otherLastDigit } from './mutate-json.ts'

const wallet = new Wallet(`0x${'17'.repeat(32)}`)
const notary = wallet.address.toLowerCase()
const domain: LogDomain = { chainId: 31337, contract: `0x${'c0'.repeat(20)}` }
const head = { size: 1234, root: decodeHex('ab'.repeat(32)) }
const types = {
  TreeHead: [
    { name: 'size', type: 'uint64' },
    { name: 'root', type: 'bytes32' },
  ],
}
const signature = sign(domain, head)

it('treeHeadDigest gives the EIP-712 digest that ethers computes', () => {
  const address = fc
    .uint8Array({ minLength: 20, maxLength: 20 })
    .map((bytes) => `0x${encodeHex(bytes)}`)
  const root = fc.uint8Array({ minLength: 32, maxLength: 32 })
  fc.assert(
    fc.property(
      fc.maxSafeNat(),
      address,
      fc.maxSafeNat(),
      root,
      (chainId, contract, size, rootBytes) => {
        const digest = treeHeadDigest({ chainId, contract }, { size, root: rootBytes })
        expect(`0x${encodeHex(digest)}`).toBe(
          TypedDataEncoder.hash(typedDomain({ chainId, contract }), types, {
            size,
            root: rootBytes,
          }),
        )
      },
    ),
  )
})

it.each([
  ['a negative size', { ...head, size: -1 }],
  ['a fractional size', { ...head, size: 0.5 }],
  ['a size that a double does not hold', { ...head, size: 2 ** 53 }],
  ['a size that is no number', { ...head, size: Number.NaN }],
  ['a short root', { ...head, root: new Uint8Array(31) }],
  ['a long root', { ...head, root: new Uint8Array(33) }],
])('treeHeadDigest refuses a malformed head: %s', (_, malformed) => {
  expect(codeOf(() => treeHeadDigest(domain, malformed))).toBe('invalid_tree_head')
})

it.each([
  ['a negative chain id', { ...domain, chainId: -1 }],
  ['a contract without 0x', { ...domain, contract: 'c0'.repeat(20) }],
  ['a contract in upper case', { ...domain, contract: `0x${'C0'.repeat(20)}` }],
  ['a short contract', { ...domain, contract: '0xc0' }],
  ['a contract with a line end', { ...domain, contract: `${domain.contract}\n` }],
])('treeHeadDigest refuses a malformed domain: %s', (_, malformed) => {
  expect(codeOf(() => treeHeadDigest(malformed, head))).toBe('invalid_log_domain')
})

it('verifyTreeHead accepts what ethers signs as typed data and gives the head', () => {
  expect(verifyTreeHead({ domain, head, signature, notary })).toEqual(head)
  const recovered = verifyTypedData(typedDomain(domain), types, head, `0x${encodeHex(signature)}`)
  expect(recovered.toLowerCase()).toBe(notary)
})

it.each([
  ['another size', { head: { ...head, size: 1235 } }],
  ['another root', { head: { ...head, root: head.root.with(31, 0xac) } }],
  ['another chain', { domain: { ...domain, chainId: 1 } }],
  ['another contract', { domain: { ...domain, contract: otherLastDigit(domain.contract) } }],
  ['another notary', { notary: otherLastDigit(notary) }],
  ['a notary in checksum case', { notary: wallet.address }],
  ['a signature of another type', { signature: decodeHex(wallet.signMessageSync(head.root)) }],
])('verifyTreeHead refuses a signed head with %s', (_, change) => {
  expect(codeOf(() => verifyTreeHead({ domain, head, signature, notary, ...change }))).toBe(
    'wrong_signer',
  )
})

it('verifyTreeHead refuses a malformed signature', () => {
  expect(
    codeOf(() => verifyTreeHead({ domain, head, signature: signature.slice(1), notary })),
  ).toBe('invalid_signature')
})

function sign(at: LogDomain, signed: typeof head): Uint8Array {
  return decodeHex(
    wallet.signingKey.sign(TypedDataEncoder.hash(typedDomain(at), types, signed)).serialized,
  )
}

function typedDomain({ chainId, contract }: LogDomain) {
  return { name: 'Affidavit', version: '1', chainId, verifyingContract: contract }
}
