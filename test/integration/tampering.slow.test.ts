import { readFile } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { stripUnsetMembers } from '#attestation/completion-hash.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { type AttestationPolicy, parseRoots } from '#attestation/nitro/policy.ts'
import { verifyAttestation } from '#attestation/nitro/verify-attestation.ts'
import { judgeRecord } from '#attestation/report/judge-record.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

type Path = readonly (string | number)[]

let service: SharedAffidavit
let text = ''
let record: Json
let policy: AttestationPolicy

/** A record with every kind of member, and the root of its attestation document. */
beforeAll(async () => {
  service = await useAffidavit()
  const headers = { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' }
  const made = await fetch(`${service.url}/v1/verified/chat/completions`, {
    method: 'POST',
    headers,
    body: JSON.stringify({
      model: 'demo/echo',
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'naïve 🙂 \u0000', name: 'Ann' },
      ],
      n: 2,
      max_tokens: 3,
      logprobs: true,
      top_logprobs: 2,
      temperature: 0.5,
      stop: ['zzz'],
      metadata: { nested: [1, 2.5, { deep: true }] },
    }),
  })
  const { hash } = (await made.json()) as { hash: string }
  text = await (
    await fetch(`${service.url}/v1/verified/chat/completions/${hash}`, { headers })
  ).text()
  record = parseExactJson(Buffer.from(text))
  policy = { measurements: 'any', roots: parseRoots(await readFile(service.rootFile)) }
})

/** Every path to a value that is neither an object nor an array. */
function leavesOf(value: Json, path: Path = []): readonly Path[] {
  if (typeof value !== 'object' || value === null) return [path]
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value)
  return entries.flatMap(([name, member]) => leavesOf(member as Json, [...path, name]))
}

/** A copy in which `change` replaces the value at the path. */
function changeAt(value: Json, [name, ...rest]: Path, change: (leaf: Json) => Json): Json {
  if (name === undefined) return change(value)
  const copy = (Array.isArray(value) ? [...value] : { ...(value as object) }) as Record<
    string | number,
    Json
  >
  copy[name] = changeAt(copy[name] ?? null, rest, change)
  return copy as unknown as Json
}

/** Other values for a leaf: of another type, and near its value. */
function othersOf(leaf: Json): readonly Json[] {
  const near =
    typeof leaf === 'string'
      ? [`${leaf} `, leaf.slice(1)]
      : typeof leaf === 'number'
        ? [leaf + 1, -leaf - 1]
        : []
  return [...near, null, typeof leaf === 'string' ? 0 : 'x', leaf !== true].filter(
    (other) => other !== leaf,
  )
}

const DEMANDS = { allowOutcome: [], verifier: { verify: verifyAttestation }, kept: {} }

/**
 * Whether a check fails. The attestation document is verified only on request, because that takes
 * longest.
 */
async function isCaught(changed: Json, isDocumentVerified = false): Promise<boolean> {
  const judged = isDocumentVerified ? policy : null
  return !(await judgeRecord({ record: changed }, { ...DEMANDS, policy: judged })).ok
}

const PROTECTED = [
  'request',
  'response',
  'hash',
  'public_key',
  'signature',
  'receipt',
  'created_at',
  'log',
  'attestation',
]

describe('a record that was tampered with', () => {
  it('the record passes every check before it is tampered with', async () => {
    expect(await judgeRecord({ record }, { ...DEMANDS, policy })).toMatchObject({
      ok: true,
      holder: { code: 'any', root: 'given' },
    })
  })

  it('a tampered record is caught for every changed value', async () => {
    const missed: string[] = []
    let tried = 0
    for (const path of leavesOf(record).filter(([name]) => PROTECTED.includes(String(name))))
      for (const other of othersOf(leafAt(record, path))) {
        tried += 1
        if (!(await isCaught(changeAt(record, path, () => other))))
          missed.push(`${path.join('.')} = ${JSON.stringify(other)}`)
      }
    expect(tried).toBeGreaterThan(500)
    expect(missed).toEqual([])
  })

  it('a tampered record is caught when a member was added or taken away', async () => {
    const missed: string[] = []
    for (const path of leavesOf(record).filter(([name]) => PROTECTED.includes(String(name)))) {
      const parent = path.slice(0, -1)
      const last = path.at(-1)
      if (parent.length === 0 || typeof last !== 'string') continue
      const added = changeAt(record, parent, (value) => ({ ...(value as object), added: 1 }))
      const removed = changeAt(record, parent, (value) =>
        Object.fromEntries(Object.entries(value as object).filter(([name]) => name !== last)),
      )
      if (!(await isCaught(added))) missed.push(`${path.join('.')} added`)
      // Null at the top of a request, or of a message, means unset: it may be absent.
      const isUnset = path[0] === 'request' && leafAt(record, path) === null
      if (!isUnset && !(await isCaught(removed))) missed.push(`${path.join('.')} removed`)
    }
    expect(missed).toEqual([])
  })

  it('a tampered record is caught when any character of its text but those of id and tx_hash was changed', async () => {
    const free = ['id', 'tx_hash'].map((name) => {
      const start = text.search(new RegExp(`"${name}":"[^"]*","(request|attestation)"`))
      return [start, text.indexOf('","', start)] as const
    })
    await fc.assert(
      fc.asyncProperty(
        fc.nat(text.length - 1),
        fc.string({ unit: 'grapheme', minLength: 0, maxLength: 2 }),
        async (position, replacement) => {
          fc.pre(!free.some(([start, end]) => position >= start && position <= end))
          const changed = text.slice(0, position) + replacement + text.slice(position + 1)
          const value = readOrNull(changed)
          if (value === null || isSame(value, record)) return
          expect(await isCaught(value, true)).toBe(true)
        },
      ),
      { numRuns: 150 },
    )
  })

  it('a changed id or tx_hash of a record is not detected: evidence shows it', async () => {
    expect(await isCaught(changeAt(record, ['id'], () => 'x'))).toBe(false)
    expect(await isCaught(changeAt(record, ['tx_hash'], () => `0x${'00'.repeat(32)}`))).toBe(false)
  })
})

function leafAt(value: Json, path: Path): Json {
  return path.reduce<Json>((at, name) => (at as Record<string | number, Json>)[name] ?? null, value)
}

function readOrNull(changed: string): Json | null {
  try {
    return parseExactJson(Buffer.from(changed))
  } catch {
    return null
  }
}

/** Equal, except for unset members of the request, which may be absent. */
function isSame(left: Json, right: Json): boolean {
  const setOf = (value: Json) => {
    const request = isJsonObject(value) ? value.request : undefined
    return isJsonObject(request)
      ? { ...(value as JsonObject), request: stripUnsetMembers(request) }
      : value
  }
  return isDeepStrictEqual(setOf(left), setOf(right))
}
