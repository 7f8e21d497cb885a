import { ApiError } from './errors.ts'

/** One admitted call. Release it when its answer was sent or its connection has closed. */
export type Slot = {
  /**
   * Counts bytes for this call. Throws ApiError `overloaded` if all calls together hold too much,
   * or if this owner's calls hold too large a share.
   */
  reserve(bytes: number): void
  /**
   * Counts the call as running, no longer as arriving. Must run when the body has arrived. Has an
   * effect only once. Throws ApiError `overloaded` if this owner can run no further call.
   */
  enter(): void
  /** Has an effect only once. */
  release(): void
}

/** A call whose bytes also count in a memory budget. */
export type ChargedSlot = Slot & {
  /**
   * Counts an answer that waits for its reader, unless the call already holds as much memory.
   * Throws ApiError `overloaded` if all answers together, or this owner's answers, hold too much.
   */
  answer(bytes: number): void
  /** Gives the place back. The memory counts until `release`. */
  leave(): void
}

export type Admission = {
  /** Memory of each call in addition to its body and answer. */
  readonly callBytes: number
  /**
   * Admits a call whose body is arriving. `owner` is an account or an address. Throws ApiError
   * `overloaded` if too many bodies arrive, in total or from this owner.
   */
  admit(owner: string): Slot
  load(): { readonly calls: number; readonly bytes: number }
}

/**
 * Limits the bodies that arrive at once, the calls that run at once, and the bytes of all calls. A
 * call beyond a limit is refused before more of its body is read. The last eighth of the places is
 * for owners that use less than a 32nd of all places. The calls of one owner hold at most three
 * quarters of the bytes. So there is always room for other owners.
 */
export function createAdmission(limits: {
  readonly callsMax: number
  readonly bytesMax: number
  /** Default 0, for short or few calls. */
  readonly callBytes?: number
}): Admission {
  const { callsMax } = limits
  const ownerCallsMax = Math.max(1, Math.floor(callsMax * OWNER_SHARE))
  const kept = Math.floor(callsMax * PLACES_KEPT)
  const isCrowded = (own: number, free: number) => own >= ownerCallsMax && free <= kept
  const arriving = createPlaces(callsMax, isCrowded)
  const running = createPlaces(callsMax, isCrowded)
  const memory = createShares(limits.bytesMax)

  function admit(owner: string): Slot {
    const arrival = arriving.take(owner)
    let place: Place | null = null
    let held = 0
    let isReleased = false
    return {
      reserve(more) {
        memory.add(owner, more, held)
        held += more
      },
      enter() {
        if (place !== null || isReleased) return
        place = running.take(owner)
        arrival.release()
      },
      release() {
        if (isReleased) return
        isReleased = true
        arrival.release()
        place?.release()
        memory.add(owner, -held, held)
      },
    }
  }

  return {
    callBytes: limits.callBytes ?? 0,
    admit,
    load: () => ({ calls: arriving.taken() + running.taken(), bytes: memory.held() }),
  }
}

type Place = Pick<Slot, 'release'>

/**
 * The last free places (a share of PLACES_KEPT) are only for owners that use less than OWNER_SHARE
 * of all places.
 */
const OWNER_SHARE = 1 / 32
const PLACES_KEPT = 1 / 8
/** Share of the bytes that one owner's calls may hold together. A single call may hold more. */
const OWNER_BYTES_SHARE = 3 / 4

/**
 * `isCrowded` returns true if an owner with `own` places must not take one of the `free` places.
 */
function createPlaces(callsMax: number, isCrowded: (own: number, free: number) => boolean) {
  const callsOf = createCounts()
  let taken = 0

  function take(owner: string): Place {
    const free = callsMax - taken
    if (free <= 0 || isCrowded(callsOf.get(owner), free)) throw overloaded()
    taken++
    callsOf.add(owner, 1)
    let isReleased = false
    return {
      release() {
        if (isReleased) return
        isReleased = true
        taken--
        callsOf.add(owner, -1)
      },
    }
  }

  return { take, taken: () => taken }
}

function createShares(bytesMax: number) {
  const bytesOf = createCounts()
  let bytes = 0
  return {
    /** `heldByCall`: bytes that the call already holds. Throws ApiError `overloaded`. */
    add(owner: string, more: number, heldByCall: number) {
      const own = bytesOf.get(owner)
      const isShared = own > heldByCall && own + more > bytesMax * OWNER_BYTES_SHARE
      if (more > 0 && (bytes + more > bytesMax || isShared)) throw overloaded()
      bytes += more
      bytesOf.add(owner, more)
    },
    held: () => bytes,
  }
}

/** An owner with count 0 is removed. */
function createCounts() {
  const counts = new Map<string, number>()
  return {
    get: (owner: string) => counts.get(owner) ?? 0,
    add(owner: string, more: number) {
      const count = (counts.get(owner) ?? 0) + more
      if (count === 0) counts.delete(owner)
      else counts.set(owner, count)
    },
  }
}

/**
 * Limits how many calls run at once, in total and for one owner, so that one owner cannot take all
 * places. `admit` throws ApiError `overloaded`.
 */
export function createSharedAdmission({
  callsMax,
  ownerCallsMax,
}: {
  readonly callsMax: number
  readonly ownerCallsMax: number
}): { admit(owner: string): Pick<Slot, 'release'> } {
  return { admit: createPlaces(callsMax, (own) => own >= ownerCallsMax).take }
}

/** Limits the memory of all calls of the process. */
export type MemoryBudget = {
  /**
   * Admits a call, and counts its bytes in this budget. `charge`, `reserve` and `answer` throw
   * ApiError `overloaded`. `reserve` throws `payload_too_large` for a call that exceeds the budget
   * even alone. `hasKey`: false if `owner` is an address. Default true.
   */
  charge(admission: Admission, owner: string, hasKey?: boolean): ChargedSlot
  load(): { readonly bytes: number; readonly bytesMax: number }
}

/**
 * Bytes of memory for each held byte: the byte itself, the text and values made from it, and the
 * copies that are sent on, as text and as bytes.
 */
export const HELD_WEIGHT = 5

/** Memory of each byte of an answer that is sent: the text, and the bytes made from it. */
const ANSWER_WEIGHT = 2
/** A shorter answer takes no more memory than its call, and is never refused. */
const ANSWER_BYTES_MIN = 4096
/**
 * Answers to callers with a key get this share in addition to the budget, and so do answers to
 * callers without a key. So slow readers never take the memory of new calls.
 */
const ANSWERS_SHARE = 1 / 2

/**
 * Larger calls may not use the last eighth of the budget, which is enough for hundreds of small
 * calls.
 */
const SMALL_BYTES_MAX = 256 * 1024
const LARGE_SHARE = 7 / 8

export function createMemoryBudget(bytesMax: number): MemoryBudget {
  const shares = createShares(bytesMax)
  const answers = {
    known: createShares(bytesMax * ANSWERS_SHARE),
    unknown: createShares(bytesMax * ANSWERS_SHARE),
  }

  function charge(admission: Admission, owner: string, hasKey = true): ChargedSlot {
    const waiting = hasKey ? answers.known : answers.unknown
    const { callBytes } = admission
    // The last eighth is for bodies, not for the fixed memory of calls.
    if (callBytes > 0 && shares.held() + callBytes > bytesMax * LARGE_SHARE) throw overloaded()
    const slot = admission.admit(owner)
    let held = 0
    let heldAnswer = 0
    let isReleased = false
    try {
      shares.add(owner, callBytes, 0)
      held = callBytes
    } catch (fault) {
      slot.release()
      throw fault
    }
    return {
      reserve(more) {
        const weight = more * HELD_WEIGHT
        const isLarge = held - callBytes + weight > SMALL_BYTES_MAX * HELD_WEIGHT
        const bound = isLarge ? bytesMax * LARGE_SHARE : bytesMax
        if (held + weight > bound) throw tooLarge()
        if (shares.held() + weight > bound) throw overloaded()
        slot.reserve(more)
        shares.add(owner, weight, held)
        held += weight
      },
      answer(bytes) {
        if (isReleased || bytes < ANSWER_BYTES_MIN) return
        // An answer that is larger than its share is sent if no other answer waits.
        const weight = Math.min(bytes * ANSWER_WEIGHT, bytesMax * ANSWERS_SHARE)
        const more = weight - held - heldAnswer
        if (more <= 0) return
        waiting.add(owner, more, heldAnswer)
        heldAnswer += more
      },
      enter: slot.enter,
      leave: () => slot.release(),
      release() {
        slot.release()
        if (isReleased) return
        isReleased = true
        shares.add(owner, -held, held)
        waiting.add(owner, -heldAnswer, heldAnswer)
      },
    }
  }

  return { charge, load: () => ({ bytes: shares.held(), bytesMax }) }
}

function overloaded(): ApiError {
  return new ApiError('overloaded', 'Too many calls at once, try again in a moment')
}

function tooLarge(): ApiError {
  return new ApiError(
    'payload_too_large',
    'The body takes more memory than this gateway has for all calls together',
  )
}
