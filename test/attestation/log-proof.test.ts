import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import type { Json } from '#attestation/json/value.ts'
import {
  hashReceipt,
  verifyLogHead,
  verifyLogProof,
  verifyReceiptInLog,
} from '#attestation/log-proof.ts'
import { parseLogProof } from '#attestation/log-proof-form.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import { buildRecord, NOTARY } from './build-record.ts'
import { codeOf } from './code-of.ts'
import { type JsonPath, replaceAt, valueAt } from './mutate-json.ts'

const { stored } = buildRecord({ before: 5, after: 3 })
const log = valueAt(stored, ['log'])
const proof = parseLogProof(log)
const receipt = parseReceipt(valueAt(stored, ['receipt']))
const publicKey = decodeHex(NOTARY.signingKey.publicKey)

it('parseLogProof gives the proof with exactly what it had', () => {
  expect(parseLogProof(log)).toEqual(log)
})

it('parseLogProof accepts the proof of a log of one leaf, whose path is empty', () => {
  const single = valueAt(buildRecord({ before: 0, after: 0 }).stored, ['log'])
  expect(parseLogProof(single)).toMatchObject({ size: 1, path: [] })
})

it.each<[string, JsonPath, Json]>([
  ['a member more', [], { ...(log as object), extra: 1 }],
  ['a negative size', ['size'], -1],
  ['a size as text', ['size'], '9'],
  ['a root with 0x', ['root'], `0x${proof.root}`],
  ['a root in upper case', ['root'], proof.root.toUpperCase()],
  ['a signature without 0x', ['signature'], proof.signature.slice(2)],
  ['a signature with a line end', ['signature'], `${proof.signature}\n`],
  ['a short signature', ['signature'], proof.signature.slice(0, -2)],
  ['a path that is no array', ['path'], {}],
  ['a path with something else in it', ['path', 0], 1],
  [
    'a path of more hashes than a log can have levels',
    ['path'],
    Array.from({ length: 55 }, () => proof.root),
  ],
  ['a fractional chain id', ['chain_id'], 0.5],
  ['a contract in checksum case', ['contract'], proof.contract.toUpperCase().replace('0X', '0x')],
  ['nothing', [], null],
])('parseLogProof refuses a malformed proof: %s', (_, path, value) => {
  expect(codeOf(() => parseLogProof(replaceAt(log, path, value)))).toBe('invalid_log_proof')
})

it('verifyLogProof gives the leaf’s place and the head', () => {
  expect(verifyLogProof({ proof, receipt, publicKey })).toEqual({
    index: 5,
    head: { size: 9, root: decodeHex(proof.root) },
  })
})

it('a log proof fails for a receipt that was changed', () => {
  const changed = { ...receipt, finished_at: receipt.finished_at + 1 }
  expect(codeOf(() => verifyReceiptInLog({ proof, receipt: changed }))).toBe('not_included')
})

it('an index past the head is refused', () => {
  expect(codeOf(() => verifyReceiptInLog({ proof: { ...proof, size: 5 }, receipt }))).toBe(
    'invalid_proof',
  )
})

it('a head of another key, chain, contract, size or root is refused', () => {
  const otherKey = decodeHex(`0x04${encodeHex(publicKey.slice(1)).replace(/^../, '')}00`)
  expect(codeOf(() => verifyLogHead({ proof, publicKey: otherKey }))).toBe('invalid_public_key')
  for (const change of [
    { chain_id: 1 },
    { contract: `0x${'00'.repeat(20)}` },
    { size: 10 },
    { root: '00'.repeat(32) },
  ])
    expect(codeOf(() => verifyLogHead({ proof: { ...proof, ...change }, publicKey }))).toBe(
      'wrong_signer',
    )
})

it('a right path to a root that the notary did not sign is no proof', () => {
  const leaf = encodeHex(hashReceipt({ ...receipt, index: 0 }))
  const forged = { ...proof, size: 1, root: leaf, path: [] }
  expect(verifyReceiptInLog({ proof: forged, receipt: { ...receipt, index: 0 } })).toEqual({
    index: 0,
    size: 1,
  })
  expect(
    codeOf(() => verifyLogProof({ proof: forged, receipt: { ...receipt, index: 0 }, publicKey })),
  ).toBe('wrong_signer')
})
