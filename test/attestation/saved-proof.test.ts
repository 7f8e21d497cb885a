import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import { parseExactJson, parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseSavedProof, writeSavedProof } from '#attestation/saved-proof.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { verifyStream } from '#attestation/verify-stream.ts'
import { makeStream } from './kept-streams.ts'

const FOLDER = join(import.meta.dirname, '../vectors/records/second')
const request = parseStrictJson(readFileSync(join(FOLDER, 'request.json'))) as JsonObject
const answer = parseExactJson(readFileSync(join(FOLDER, 'created.json')))
const stream = makeStream({ version: 2, usageAsked: false })

const reread = (text: string) => parseSavedProof(parseExactJson(Buffer.from(text)))
const codeOf = (json: Json) => {
  try {
    parseSavedProof(json)
    return 'accepted'
  } catch (fault) {
    return fault instanceof FormatError ? fault.code : String(fault)
  }
}

describe('a saved proof', () => {
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
    expect(JSON.parse(writeSavedProof(saved)).version).toBe(2)
  })

  it('the same call is saved as the same text', () => {
    const { hash, ...rest } = answer as JsonObject
    const text = writeSavedProof({ request, answer: { kind: 'whole', answer } })
    const again = { ...rest, hash: hash ?? null }
    expect(writeSavedProof({ request, answer: { kind: 'whole', answer: again } })).toBe(text)
  })

  it.each<[string, Json, string]>([
    ['no object', [], 'unknown_proof_format'],
    ['another format', { format: 'affidavit-evidence', version: 1 }, 'unknown_proof_format'],
    [
      'another version',
      { format: 'affidavit-proof', version: 3, request: {}, answer: {} },
      'unknown_proof_format',
    ],
    [
      'version 2 without a bundle',
      { format: 'affidavit-proof', version: 2, request: {}, answer: {} },
      'invalid_proof_file',
    ],
    [
      'a bundle that is no object',
      { format: 'affidavit-proof', version: 2, request: {}, answer: {}, bundle: [] },
      'invalid_proof_file',
    ],
    [
      'a bundle in version 1',
      { format: 'affidavit-proof', version: 1, request: {}, answer: {}, bundle: {} },
      'invalid_proof_file',
    ],
    ['no answer', { format: 'affidavit-proof', version: 1, request: {} }, 'invalid_proof_file'],
    [
      'an answer and chunks',
      { format: 'affidavit-proof', version: 1, request: {}, answer: {}, chunks: [] },
      'invalid_proof_file',
    ],
    [
      'a member more',
      { format: 'affidavit-proof', version: 1, request: {}, answer: {}, note: '' },
      'invalid_proof_file',
    ],
    [
      'a request that is no object',
      { format: 'affidavit-proof', version: 1, request: [], answer: {} },
      'invalid_proof_file',
    ],
    [
      'chunks that are no array',
      { format: 'affidavit-proof', version: 1, request: {}, chunks: {} },
      'invalid_proof_file',
    ],
    [
      'a chunk that is no object',
      { format: 'affidavit-proof', version: 1, request: {}, chunks: [1] },
      'invalid_proof_file',
    ],
  ])('a saved proof is refused with its code: %s', (_, json, code) => {
    expect(codeOf(json)).toBe(code)
  })
})
