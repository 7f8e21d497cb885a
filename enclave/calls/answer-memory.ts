import {
  ANSWER_SIZE_MAX,
  isWithinSize,
  type JsonSize,
  measureJson,
} from '#attestation/json/json-size.ts'
import { CallFault } from '../call-fault.ts'
import { ANSWER_ROOM_BYTES, type Reservation } from '../log/memory-budget.ts'
import { weighAssembly, weighJson } from '../log/weigh-json.ts'

/** Bytes of memory for each byte of an incomplete event: growing buffer and text of the lines. */
const WAITING_FACTOR = 6

/** If memory is short, a new count is made only if over 1/8 may have been added. */
const RECOUNT_SHARE = 8

/**
 * Reserves the memory for a whole answer (attacker-controlled bytes) before any part is built.
 * Throws CallFault `answer_too_large` when the answer exceeds ANSWER_SIZE_MAX, or when all calls
 * together would exceed the memory limit.
 */
export function admitAnswer(space: Pick<Reservation, 'hold'>, body: Uint8Array): void {
  const size = measureJson(body)
  checkSize(size)
  takeSpace(space.hold(weighJson(body, size)))
}

/** Throws CallFault `answer_too_large` if a reservation was refused. */
export function takeSpace(isGranted: boolean): void {
  if (!isGranted)
    throw new CallFault(
      'answer_too_large',
      'The answer is too large beside others that are under way: try again later, or ask for less.',
    )
}

/**
 * Reserves the memory of one stream. Each event adds the maximum that it can need. When the sum of
 * these additions exceeds the last count, the assembly is counted again. Thus a stream whose chunks
 * replace the same members reserves little memory, and each part of an event takes constant time.
 */
export class StreamMemory {
  private readonly space: Pick<Reservation, 'hold'>
  /** Returns the answer so far, as maps, arrays, objects and strings. */
  private readonly assembly: () => unknown
  /** Bytes of the assembly at the last count. */
  private knownBytes = 0
  /** Upper bound for the bytes of the events since the last count. */
  private addedBytes = 0
  /** Bytes of the newest accepted event and its input. The assembly may not contain them yet. */
  private eventBytes = 0
  private waitingBytes = 0

  constructor(space: Pick<Reservation, 'hold'>, assembly: () => unknown) {
    this.space = space
    this.assembly = assembly
  }

  /**
   * Reserves the memory for an event (attacker-controlled) before any part is built. `size` is the
   * size of the event's JSON. Throws CallFault `answer_too_large`, also for the whole assembly.
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
   * Reserves the memory for the input of a tool, which was a text until the newest event. Throws
   * CallFault `answer_too_large`.
   */
  admitInput(text: string): void {
    const size = measureJson(text)
    checkSize(size)
    this.eventBytes += weighJson(text, size)
    this.hold()
  }

  /**
   * Checks the assembly before the last event, because events since the last count may exceed
   * ANSWER_SIZE_MAX together. Throws CallFault `answer_too_large`.
   */
  checkAssembly(): void {
    checkSize(weighAssembly(this.assembly()).size)
  }

  /** Sets the number of bytes in the incomplete event. Throws CallFault `answer_too_large`. */
  wait(bytes: number): void {
    this.waitingBytes = bytes * WAITING_FACTOR
    this.hold()
  }

  private countAssembly(): void {
    const { size, bytes } = weighAssembly(this.assembly())
    checkSize(size)
    this.knownBytes = bytes
    this.addedBytes = 0
  }

  private hold(): void {
    if (this.space.hold(this.sum())) return
    // The sum is an upper bound. A new count can make it smaller.
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
      "The provider's answer has too many arrays, objects or members: " +
        'ask for fewer tokens or choices, or without logprobs.',
    )
}
