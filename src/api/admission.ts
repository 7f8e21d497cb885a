import { ApiError } from './errors.ts'

/** One admitted call. Belongs to the call; release it in a `finally`. */
export type Slot = {
  /**
   * Counts `bytes` more as held for this call. Throws ApiError `overloaded` when all calls together
   * hold too much.
   */
  reserve(bytes: number): void
  /** Gives back the call and its bytes. Only the first time counts. */
  release(): void
}

export type Admission = {
  /** Memory that each call takes beside the bytes of its body and answer. */
  readonly callBytes: number
  /** Admits a call. Throws ApiError `overloaded` when there are too many. */
  admit(): Slot
  /** Calls under way, and the bytes they hold. */
  load(): { readonly calls: number; readonly bytes: number }
}

/**
 * Bounds what calls take of this process: how many run at once, and the bytes of bodies they hold
 * together. Whoever comes beyond that is refused at once with a short answer, before anything of
 * theirs is read.
 */
export function createAdmission(limits: {
  readonly callsMax: number
  readonly bytesMax: number
  /** Default 0: calls that are short, or few. */
  readonly callBytes?: number
}): Admission {
  let calls = 0
  let bytes = 0

  function admit(): Slot {
    if (calls >= limits.callsMax) throw overloaded()
    calls++
    let held = 0
    let isReleased = false
    return {
      reserve(more) {
        if (bytes + more > limits.bytesMax) throw overloaded()
        bytes += more
        held += more
      },
      release() {
        if (isReleased) return
        isReleased = true
        calls--
        bytes -= held
      },
    }
  }

  return { callBytes: limits.callBytes ?? 0, admit, load: () => ({ calls, bytes }) }
}

/**
 * Bounds how many calls run at once, and of one owner, who is told by a name: so that nobody takes
 * all places. `admit` throws ApiError `overloaded` for what comes beyond either.
 */
export function createSharedAdmission({
  callsMax,
  ownerCallsMax,
}: {
  readonly callsMax: number
  readonly ownerCallsMax: number
}): { admit(owner: string): Pick<Slot, 'release'> } {
  const all = createAdmission({ callsMax, bytesMax: 0 })
  /** Owners without a call are in it no more. */
  const callsOf = new Map<string, number>()
  return {
    admit(owner) {
      const calls = callsOf.get(owner) ?? 0
      if (calls >= ownerCallsMax) throw overloaded()
      const slot = all.admit()
      callsOf.set(owner, calls + 1)
      let isReleased = false
      return {
        release() {
          if (isReleased) return
          isReleased = true
          slot.release()
          const left = (callsOf.get(owner) ?? 1) - 1
          if (left === 0) callsOf.delete(owner)
          else callsOf.set(owner, left)
        },
      }
    },
  }
}

/** Bounds what all calls of the process hold together, whatever they are for. */
export type MemoryBudget = {
  /**
   * Admits a call, whose bytes are counted here too. Throws ApiError `overloaded`; so does
   * `reserve`, and `payload_too_large` for a call that would be too much if it were alone.
   */
  charge(admission: Admission): Slot
  /** Bytes that are held, and how many may be. */
  load(): { readonly bytes: number; readonly bytesMax: number }
}

/**
 * Bytes that a held byte counts for: itself, as text and in values that are made of it, and what is
 * on its way to whoever works on it, as text and as bytes.
 */
export const HELD_WEIGHT = 5

/**
 * Calls that hold more than this are large. They get all but an eighth of the budget, so that what
 * they leave is enough for hundreds of small ones.
 */
const SMALL_BYTES_MAX = 256 * 1024
const LARGE_SHARE = 7 / 8

/** A budget of `bytesMax`, weighed; nothing is held yet. */
export function createMemoryBudget(bytesMax: number): MemoryBudget {
  let bytes = 0

  function charge(admission: Admission): Slot {
    const { callBytes } = admission
    // Calls by themselves leave room for others' bodies.
    if (callBytes > 0 && bytes + callBytes > bytesMax * LARGE_SHARE) throw overloaded()
    const slot = admission.admit()
    let held = callBytes
    let isReleased = false
    bytes += held
    return {
      reserve(more) {
        const weight = more * HELD_WEIGHT
        const isLarge = held - callBytes + weight > SMALL_BYTES_MAX * HELD_WEIGHT
        const bound = isLarge ? bytesMax * LARGE_SHARE : bytesMax
        if (held + weight > bound) throw tooLarge()
        if (bytes + weight > bound) throw overloaded()
        slot.reserve(more)
        bytes += weight
        held += weight
      },
      release() {
        slot.release()
        if (isReleased) return
        isReleased = true
        bytes -= held
      },
    }
  }

  return { charge, load: () => ({ bytes, bytesMax }) }
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
