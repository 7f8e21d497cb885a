import { hash, randomBytes } from 'node:crypto'
import type { DemoRequest } from './request.ts'

/** `system_fingerprint` of every answer: says that no model made it. */
export const DEMO_FINGERPRINT = 'fp_demonstration'
/** `created` of an answer to a request with `seed`. */
export const SEEDED_CREATED = 1_700_000_000

/** The members that an answer and each of its chunks share. */
export type AnswerIdentity = {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly service_tier: 'default'
  readonly system_fingerprint: typeof DEMO_FINGERPRINT
}

/** Ids are a random number of this process followed by a count: new for each answer, at no cost. */
const PROCESS_ID = randomBytes(8).toString('hex')
let answers = 0

/**
 * Gives the identity of one answer. With `seed` in the request the id and the time are derived from the request,
 * so that the same call gives the same answer to the byte; without, they are new for each call.
 */
export function identifyAnswer(request: DemoRequest, nowMs: number): AnswerIdentity {
  const seeded = typeof request.seed === 'number'
  const name = seeded ? hash('sha256', JSON.stringify(request), 'hex').slice(0, 24) : nextName()
  return {
    id: `chatcmpl-demo-${name}`,
    created: seeded ? SEEDED_CREATED : Math.floor(nowMs / 1000),
    model: request.model,
    service_tier: 'default',
    system_fingerprint: DEMO_FINGERPRINT,
  }
}

function nextName(): string {
  answers += 1
  return PROCESS_ID + answers.toString(16).padStart(8, '0')
}

/** Gives the id of a tool call: told apart within an answer, and the same whenever the answer's id is. */
export function toolCallId(identity: AnswerIdentity, choiceIndex: number, callIndex: number): string {
  return `call_${identity.id.slice('chatcmpl-demo-'.length)}_${choiceIndex}_${callIndex}`
}
