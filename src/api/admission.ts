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

  return { admit, load: () => ({ calls, bytes }) }
}

function overloaded(): ApiError {
  return new ApiError('overloaded', 'Too many calls at once, try again in a moment')
}
