import {
  ANSWER_SIZE_MAX,
  isWithinSize,
  type JsonSize,
  measureJson,
} from '../../attestation/json/json-size.ts'
import { CallFault } from '../call-fault.ts'
import { ANSWER_ROOM_BYTES, type Reservation } from '../log/memory-budget.ts'
import { weighAssembly, weighJson } from '../log/weigh-json.ts'

/**
 * Memory for each byte that waits for the end of its event: the buffer that grows, and the text of
 * its lines.
 */
const WAITING_FACTOR = 6

/**
 * At the limit, an assembly is counted again only when the events since the last count are over 1/8
 * of that count.
 */
const RECOUNT_SHARE = 8

/**
 * Takes the memory that a whole answer (attacker-controlled bytes) will need, before anything of it
 * is built. Throws CallFault `answer_too_large` when it is over ANSWER_SIZE_MAX, or when all calls
 * together would need more than there is.
 */
export function admitAnswer(space: Pick<Reservation, 'hold'>, body: Uint8Array): void {
  const size = measureJson(body)
  checkSize(size)
  takeSpace(space.hold(weighJson(body, size)))
}

/** Throws CallFault `answer_too_large` unless a reservation was granted. */
export function takeSpace(isGranted: boolean): void {
  if (!isGranted)
    throw new CallFault(
      'answer_too_large',
      'The answer is too large beside others that are under way: try again later, or ask for less.',
    )
}

/**
 * Accounts for the memory of one stream. It sums up the most that each event can have added. When
 * that sum is as large as the last count, it counts what the assembly really has. So a long stream
 * of small chunks, which mostly replace the same members, holds little, and counting costs a
 * constant time for each part of an event.
 */
export class StreamMemory {
  private readonly space: Pick<Reservation, 'hold'>
  private readonly assembly: unknown
  /** Of the assembly, when it was last counted. */
  private knownBytes = 0
  /** Of the events since then: at least what they added. */
  private addedBytes = 0
  /** Of the event that was admitted last, which the assembly may not have yet. */
  private eventBytes = 0
  /** Of the event that is not complete yet. */
  private waitingBytes = 0

  constructor(space: Pick<Reservation, 'hold'>, assembly: unknown) {
    this.space = space
    this.assembly = assembly
  }

  /**
   * Takes the memory that an event (attacker-controlled) will need, before anything of it is built.
   * Throws CallFault `answer_too_large` as admitAnswer does, of the event and of all that is
   * assembled. `size`: of the event, where that is known.
   */
  admit(data: string, size: JsonSize = measureJson(data)): void {
    checkSize(size)
    this.addedBytes += this.eventBytes
    this.eventBytes = 0
    if (this.addedBytes > Math.max(this.knownBytes, ANSWER_ROOM_BYTES / 2)) this.countAssembly()
    this.eventBytes = weighJson(data, size)
    this.hold()
  }

  /**
   * Says how many bytes wait for the end of their event now. Throws CallFault `answer_too_large`.
   */
  wait(bytes: number): void {
    this.waitingBytes = bytes * WAITING_FACTOR
    this.hold()
  }

  private countAssembly(): void {
    const { size, bytes } = weighAssembly(this.assembly)
    checkSize(size)
    this.knownBytes = bytes
    this.addedBytes = 0
  }

  private hold(): void {
    if (this.space.hold(this.sum())) return
    // The sum is an upper bound. Counting again is worth it when much was added.
    if (this.addedBytes > this.knownBytes / RECOUNT_SHARE) this.countAssembly()
    takeSpace(this.space.hold(this.sum()))
  }

  private sum(): number {
    return this.knownBytes + this.addedBytes + this.eventBytes + this.waitingBytes
  }
}

function checkSize(size: JsonSize): void {
  if (!isWithinSize(size, ANSWER_SIZE_MAX))
    throw new CallFault(
      'answer_too_large',
      "The provider's answer has too many arrays, objects or members: ask for fewer tokens or choices, or without logprobs.",
    )
}
