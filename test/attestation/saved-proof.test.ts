import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { parseExactJson, parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseSavedProof, writeSavedProof } from '#attestation/saved-proof.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { verifyStream } from '#attestation/verify-stream.ts'
import { codeOf } from './code-of.ts'
import { makeStream } from './kept-streams.ts'

const FOLDER = join(import.meta.dirname, '../vectors/records')
const request = parseStrictJson(readFileSync(join(FOLDER, 'request.json'))) as JsonObject
const answer = parseExactJson(readFileSync(join(FOLDER, 'created.json')))
const stream = makeStream({ usageAsked: false })

const reread = (text: string) => parseSavedProof(parseExactJson(Buffer.from(text)))
it('the saved proof of a whole answer holds what verifies', () => {
  const saved = reread(writeSavedProof({ request, answer: { kind: 'whole', answer } }))
  expect(saved).toEqual({ request, answer: { kind: 'whole', answer } })
  expect(verifyRecord(answer, { request: saved.request }).ok).toBe(true)
})

it('the saved proof of a stream holds all its chunks', () => {
  const { chunks } = stream
  const saved = reread(
    writeSavedProof({ request: stream.request, answer: { kind: 'stream', chunks } }),
  )
  expect(saved.answer).toEqual({ kind: 'stream', chunks })
  expect(verifyStream(chunks, { request: saved.request }).ok).toBe(true)
})

it('the saved proof of a call whose anchor is mined holds the bundle too', () => {
  const bundle = { format: 'affidavit-evidence' }
  const saved = { request, answer: { kind: 'whole', answer }, bundle } as const
  expect(reread(writeSavedProof(saved))).toEqual(saved)
})

it('the same call is saved as the same text', () => {
  const { hash, ...rest } = answer as JsonObject
  const text = writeSavedProof({ request, answer: { kind: 'whole', answer } })
  const again = { ...rest, hash: hash ?? null }
  expect(writeSavedProof({ request, answer: { kind: 'whole', answer: again } })).toBe(text)
})

it.each<[string, Json]>([
  ['no object', []],
  ['another format', { format: 'affidavit-evidence', version: 1 }],
  ['another version', { format: 'affidavit-proof', version: 2, request: {}, answer: {} }],
])('a saved proof of an unknown format is refused: %s', (_, json) => {
  expect(codeOf(() => parseSavedProof(json))).toBe('unknown_proof_format')
})

it.each<[string, JsonObject]>([
  ['a bundle that is no object', { answer: {}, bundle: [] }],
  ['no answer', {}],
  ['an answer and chunks', { answer: {}, chunks: [] }],
  ['a member more', { answer: {}, note: '' }],
  ['a request that is no object', { request: [], answer: {} }],
  ['chunks that are no array', { chunks: {} }],
  ['a chunk that is no object', { chunks: [1] }],
])('a saved proof of a wrong form is refused: %s', (_, members) => {
  const json = { format: 'affidavit-proof', version: 1, request: {}, ...members }
  expect(codeOf(() => parseSavedProof(json))).toBe('invalid_proof_file')
})
