import { expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import { parseHeadAttestation } from '#attestation/evidence/head-attestation-form.ts'
import type { Json } from '#attestation/json/value.ts'
import { buildHeadAttestation } from './build-head-attestation.ts'

const valid = buildHeadAttestation()

it('parseHeadAttestation gives the attestation that it was given', () => {
  expect(parseHeadAttestation(JSON.parse(JSON.stringify(valid)))).toEqual(valid)
})

it.each<[string, Json]>([
  ['a list', []],
  ['null', null],
  ['a member too many', { ...valid, more: 1 }],
  ['no root', { ...valid, root: undefined as unknown as null }],
  ['a size that is text', { ...valid, size: '7' }],
  ['a size below 0', { ...valid, size: -1 }],
  ['a root with prefix', { ...valid, root: `0x${valid.root}` }],
  ['a root in upper case', { ...valid, root: valid.root.toUpperCase() }],
  ['a block number that is not whole', { ...valid, block_number: 1.5 }],
  ['a block hash without prefix', { ...valid, block_hash: valid.block_hash.slice(2) }],
  ['a block hash of 31 bytes', { ...valid, block_hash: valid.block_hash.slice(0, -2) }],
  ['a time over 2^53-1', { ...valid, created_at: 2 ** 53 }],
  ['an empty document', { ...valid, document: '' }],
  ['a document in base64url', { ...valid, document: '-_==' }],
  ['a document that is too long', { ...valid, document: 'AAAA'.repeat(5462) }],
])('parseHeadAttestation refuses a malformed attestation: %s', (_, json) => {
  expect(() => parseHeadAttestation(json)).toThrow(FormatError)
})
