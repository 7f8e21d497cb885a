import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readChatRequest } from '#enclave/protocol/chat-form.ts'
import type { RequestFault } from '#enclave/protocol/request-faults.ts'
import { ValidationError } from '#src/api/errors.ts'
import { providersRequestWith } from '#src/chat/chat-request.ts'
import { validateBody } from '../../support/validate-body.ts'

/**
 * A request with every member, and odd values that are put in each of its places. `faults` has what
 * they are refused with, by the place: the faults of one value, a line each, and the places in `odd`
 * of the values that have them.
 */
const {
  whole,
  odd: ODD,
  faults: EXPECTED,
} = JSON.parse(readFileSync(join(import.meta.dirname, 'chat-faults.json'), 'utf8')) as {
  readonly whole: unknown
  readonly odd: readonly unknown[]
  readonly faults: Readonly<Record<string, Readonly<Record<string, readonly number[]>>>>
}
/** SHA-256 of the faults of 500 requests that have several, a line each. */
const SEVERAL_SHA256 = '78b0080d3e14528706dc4f2839fb06478eb9351d2f374eb17b7ce5de99c69eed'

function faultsOf(body: Uint8Array): readonly RequestFault[] {
  const read = readChatRequest(body)
  return 'faults' in read ? read.faults : []
}

/** What the gateway says of the same body in a call that is not encrypted. */
function gatewayFaults(body: Uint8Array): readonly object[] {
  try {
    validateBody(providersRequestWith({}), body)
    return []
  } catch (error) {
    if (error instanceof ValidationError) return error.detail
    throw error
  }
}

const linesOf = (faults: readonly RequestFault[]) =>
  faults.map(({ loc, type, msg }) => `${loc.join('.')} ${type}: ${msg}`).join('\n')

/** A generator of numbers below a bound, the same in every run. */
function makeDice(seed: number) {
  let state = seed
  return (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

type Value = unknown

/** All places of a value, as the way there. */
function* placesOf(value: Value, path: readonly string[] = []): Generator<readonly string[]> {
  yield path
  if (typeof value === 'object' && value !== null)
    for (const [name, child] of Object.entries(value)) yield* placesOf(child, [...path, name])
}

/** A copy with another value at a place; undefined takes the member away. */
function changed(value: Value, path: readonly string[], to: Value): Value {
  const [step, ...rest] = path
  if (step === undefined) return to
  const copy: Record<string, Value> = structuredClone(value) as Record<string, Value>
  const child = changed(copy[step], rest, to)
  if (child !== undefined) copy[step] = child
  else if (Array.isArray(copy)) copy.splice(Number(step), 1)
  else delete copy[step]
  return copy
}

const bytesOf = (value: Value) => Buffer.from(JSON.stringify(value) ?? '')

describe('the form of a chat request', () => {
  it('a chat request is refused with the same faults as ever for each odd value at each place', () => {
    const odd = [...ODD, undefined]
    const found = [...placesOf(whole)].map((path) => {
      const byFaults = Map.groupBy(odd.keys(), (index) =>
        linesOf(faultsOf(bytesOf(changed(whole, path, odd[index])))),
      )
      return [path.join('.'), Object.fromEntries(byFaults)]
    })
    expect(Object.fromEntries(found)).toEqual(EXPECTED)
    expect(faultsOf(bytesOf(whole))).toEqual([])
  })

  it('a chat request is refused with the same faults as ever when it has several, by the gateway too', () => {
    const dice = makeDice(14)
    const hash = createHash('sha256')
    const differing: string[] = []
    for (let round = 0; round < 500; round++) {
      let request: Value = whole
      for (let count = dice(4); count >= 0; count--) {
        const places = [...placesOf(request)]
        const place = places[dice(places.length)] ?? []
        request = changed(request, place.length === 0 ? ['n'] : place, ODD[dice(ODD.length)])
        if (typeof request !== 'object' || request === null) request = whole
      }
      const body = bytesOf(request)
      const faults = JSON.stringify(
        faultsOf(body).map(({ loc, msg, type }) => ({ loc, msg, type })),
      )
      hash.update(`${faults}\n`)
      if (JSON.stringify(gatewayFaults(body)) !== faults) differing.push(body.toString())
    }
    expect(differing).toEqual([])
    expect(hash.digest('hex')).toBe(SEVERAL_SHA256)
  })

  it.each([
    ['', 'body missing: Field required'],
    ['{', 'body.1 json_invalid: expected a member name, at offset 1'],
    ['null', 'body dict_type: Input should be a valid dictionary'],
    [
      '{"model":"m","model":"m"}',
      'body.model duplicate_key: expected each member name once, at offset 13',
    ],
    [
      '{"messages":[],"model":"m","seed":9007199254740993}',
      'body.seed unsafe_integer: expected a number that a double holds exactly, this one is beyond ±(2^53-1), at offset 34',
    ],
    [
      '['.repeat(1_000),
      'body.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0 too_deep: expected at most 128 arrays and objects inside each other, at offset 128',
    ],
    [
      '{"__proto__":{"model":"m"},"messages":[{"role":"user","content":"x"}]}',
      'body.model missing: Field required',
    ],
    [
      '{"model":"m","messages":[{"role":"__proto__","content":"x"}]}',
      "body.messages.0.role literal_error: Input should be 'developer', 'system', 'user', 'assistant', 'tool' or 'function'",
    ],
  ])('a chat request is refused for the body %j', (text, lines) => {
    expect(linesOf(faultsOf(Buffer.from(text)))).toBe(lines)
    expect(gatewayFaults(Buffer.from(text))).toEqual(faultsOf(Buffer.from(text)))
  })

  it('a chat request is refused with 50 of a million faults within seconds', () => {
    const body = Buffer.from(`{"model":"m","messages":[${'1,'.repeat(999_999)}1]}`)
    const begun = process.threadCpuUsage()
    expect(faultsOf(body)).toHaveLength(50)
    expect(process.threadCpuUsage(begun).user).toBeLessThan(5_000_000)
  })
})
