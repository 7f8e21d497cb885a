import { createFrameReader, writeFrame } from '#attestation/ehbp.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { AffidavitErrorCode } from '#client/errors.ts'
import type { ForgedNotary } from '../forged-notary.ts'
import type { Attack, GatewayAnswer, PassingCall } from '../hostile-gateway.ts'

/** One attack, and the code of its refusal. */
export type AttackCase = {
  readonly name: string
  readonly code: AffidavitErrorCode
  readonly attack: Attack
  /** Members of the request, beside the usual ones. */
  readonly request?: object
}

/** Notaries that the attacker in between controls. */
export type ForgerName =
  | 'trusted' //            expected code and configuration under the trusted root
  | 'otherCode' //          other code under the trusted root
  | 'otherRoot' //          expected code in its document, under a root that is not trusted
  | 'otherConfiguration' // expected code under the trusted root, with a provider of the attacker's
  | 'expired' //            expected, but for certificates that have expired

/** Gives a forger, once it is made. */
export type Forge = (name: ForgerName) => ForgedNotary

/** Cases of one kind: what each does, its code, and its attack. */
export function casesOf(
  kind: string,
  rows: readonly (readonly [name: string, code: AffidavitErrorCode, attack: Attack])[],
): readonly AttackCase[] {
  return rows.map(([name, code, attack]) => ({ name: `${kind}: ${name}`, code, attack }))
}

/** Text that no enclave gave out: it must not reach a caller. */
export const EVIL = 'Transfer everything to Mallory.'

type Members = Record<string, unknown>

/** An answer as JSON, to be changed in place. */
// biome-ignore lint/suspicious/noExplicitAny: attacks reach for members of any depth.
export type Loose = any

/** Changes the JSON of what the real gateway answers. */
export function editing(change: (answer: Loose, call: PassingCall) => unknown): Attack {
  return {
    meets: 'completions',
    async answer(call) {
      const answer = await call.ask()
      const json = JSON.parse(textOf(answer)) as Members
      await change(json, call)
      return { ...answer, body: JSON.stringify(json) }
    },
  }
}

/** Changes the text of what the real gateway answers. */
export function rewriting(
  change: (text: string, call: PassingCall) => string | Uint8Array | Promise<string | Uint8Array>,
): Attack {
  return {
    meets: 'completions',
    async answer(call) {
      const answer = await call.ask()
      return { ...answer, body: await change(textOf(answer), call) }
    },
  }
}

/** Changes the frames, each with its length, of an encrypted answer. */
export function reframing(
  change: (frames: readonly Uint8Array[]) => readonly Uint8Array[],
): Attack {
  return {
    meets: 'completions',
    async answer(call) {
      const answer = await call.ask()
      return { ...answer, body: Buffer.concat(change(framesOf(answer))) }
    },
  }
}

/**
 * The frames of an encrypted answer, each with its length; empty for an answer that is not
 * encrypted.
 */
export function framesOf({ body }: GatewayAnswer): readonly Uint8Array[] {
  if (!(body instanceof Uint8Array)) return []
  return [...createFrameReader(body.length).push(body)].map(writeFrame)
}

/** A frame with a bit of its ciphertext changed. */
export function damage(frame: Uint8Array): Uint8Array {
  return frame.with(9, (frame[9] ?? 0) ^ 1)
}

/** Sends the real gateway another request than the caller's. */
export function asking(change: (request: Loose) => unknown): Attack {
  return {
    meets: 'completions',
    answer: (call) => {
      const request = JSON.parse(call.body) as Members
      change(request)
      return call.ask(JSON.stringify(request))
    },
  }
}

/** Gives an answer that does not come from the real gateway. */
export function saying(
  answer: (call: PassingCall) => GatewayAnswer | Promise<GatewayAnswer>,
): Attack {
  return { meets: 'completions', answer }
}

/** An answer of this JSON. */
export function json(value: unknown, status = 200): GatewayAnswer {
  return {
    status,
    headers: { 'content-type': 'application/json; charset=utf-8' },
    body: JSON.stringify(value),
  }
}

/** The body of the real gateway's answer, which is always text. */
export function textOf({ body }: GatewayAnswer): string {
  if (typeof body !== 'string') throw new Error('expected an answer of the real gateway')
  return body
}

/**
 * The completion of another call, which the attacker makes, in the form that the caller asked for.
 */
export async function otherCompletion(call: PassingCall): Promise<string> {
  const request = JSON.parse(call.body) as Members
  const other = { ...request, messages: [{ role: 'user', content: EVIL }] }
  return textOf(await call.ask(JSON.stringify(other)))
}

/** JSON so deep that a recursive reader runs out of stack. */
export const ABYSS = `${'['.repeat(100_000)}${']'.repeat(100_000)}`

/** A completion that says EVIL. */
export const EVIL_RESPONSE: JsonObject = {
  id: 'chatcmpl-evil',
  object: 'chat.completion',
  created: 1_790_000_000,
  model: 'demo/echo',
  choices: [
    {
      index: 0,
      message: { role: 'assistant', content: EVIL, refusal: null },
      logprobs: null,
      finish_reason: 'stop',
    },
  ],
  usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
}

const chunk = (delta: JsonObject, finish: string | null): JsonObject => ({
  id: 'chatcmpl-evil',
  object: 'chat.completion.chunk',
  created: 1_790_000_000,
  model: 'demo/echo',
  choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
})

/** The same as a stream. */
export const EVIL_CHUNKS: readonly JsonObject[] = [
  chunk({ role: 'assistant', content: '' }, null),
  chunk({ content: EVIL }, null),
  chunk({}, 'stop'),
]
