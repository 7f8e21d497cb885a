import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { type Json, type JsonObject, memberAt } from '#attestation/json/value.ts'
import { type Job, NO_POLICY } from '#src/web/verify/job.ts'
import { VECTORS } from '../../../conformance/manifest.ts'

// By a name that the type checker does not follow: only the pages' own configuration has the types
// of a browser.
const room = (path: string) => new URL(`../../../../src/web/${path}`, import.meta.url).href
const { judgeCompletion } = await import(room('completion/judge-completion.ts'))
const { runJob } = await import(room('verify/run-job.ts'))

const bundle = parseExactJson(await readFile(join(VECTORS, 'evidence/bundle.json'))) as JsonObject
const record = bundle.record as JsonObject
const OTHER = 'f0'.repeat(32)

const judge = (given: Json, hash: string) =>
  judgeCompletion(given, {
    hash,
    policy: NO_POLICY,
    kept: null,
    checker: { run: (job: Job) => runJob(job, () => undefined), stop: () => undefined },
  })

describe('the evidence of a completion', () => {
  beforeEach(() => vi.stubGlobal('isSecureContext', true))
  afterEach(() => vi.unstubAllGlobals())

  it('the evidence of a completion is judged as a bundle of this hash', async () => {
    const judgement = await judge(bundle, String(record.hash))
    expect(memberAt(judgement, 'outcome', 'judged', 'kind')).toBe('bundle')
    const changed = await judge({ ...bundle, record: { ...record, hash: OTHER } }, OTHER)
    expect(memberAt(changed, 'outcome', 'judged', 'verdict')).toBe('invalid')
  })

  it.each([
    ['a bundle of another hash', bundle],
    ['a page of records', { record: { hash: OTHER }, completions: [record] }],
    ['a record', { ...record, record: { hash: OTHER } }],
  ])('the evidence of another completion is not shown as this one: %s', async (_, given) => {
    const judgement = await judge(given, OTHER)
    expect(memberAt(judgement, 'outcome', 'judged')).toBeUndefined()
  })
})
