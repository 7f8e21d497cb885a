import { ENCLAVES_MAX } from './limits.ts'
import { Seat, type SeatOptions } from './seat.ts'
import { isUsable } from './seat-state.ts'

/** The seats that there are, by the paths of their sockets. */
export type SeatBoard = {
  list(): readonly Seat[]
  /** Has a seat serve: a new one, or one that was drained. Its enclave is checked first. `limit`: there are ENCLAVES_MAX. */
  add(socketPath: string): Promise<'done' | 'limit'>
  /** Gives a seat no more calls, and has its log settled. Does not wait for that. */
  drain(socketPath: string): 'done' | 'unknown'
  /** Forgets a seat. `in_use`: it has to be drained first. */
  remove(socketPath: string): Promise<'done' | 'unknown' | 'in_use'>
  /** Waits for the first that is usable; false when none is within `timeoutMs`, or all are refused. */
  awaitUsable(timeoutMs: number): Promise<boolean>
}

/** Opens a seat for each path, and begins to watch it. */
export function openSeats(
  socketPaths: readonly string[],
  seatOf: (socketPath: string) => SeatOptions,
): SeatBoard {
  const seats = new Map<string, Seat>()
  const listeners = new Set<() => void>()
  const list = () => [...seats.values()]

  function open(socketPath: string): Seat {
    const seat = new Seat(seatOf(socketPath))
    seat.onChange = () => {
      for (const listener of listeners) listener()
    }
    seats.set(socketPath, seat)
    seat.start()
    return seat
  }

  for (const socketPath of socketPaths) open(socketPath)
  return {
    list,
    async add(socketPath) {
      const known = seats.get(socketPath)
      if (known === undefined && seats.size >= ENCLAVES_MAX) return 'limit'
      const seat = known ?? open(socketPath)
      seat.order('serve')
      await seat.look()
      return 'done'
    },
    drain(socketPath) {
      const seat = seats.get(socketPath)
      seat?.order('drain')
      return seat === undefined ? 'unknown' : 'done'
    },
    async remove(socketPath) {
      const seat = seats.get(socketPath)
      if (seat === undefined) return 'unknown'
      if (seat.phase === 'usable' || seat.phase === 'draining' || seat.state.calls > 0) return 'in_use'
      seats.delete(socketPath)
      await endSeat(seat)
      return 'done'
    },
    awaitUsable: (timeoutMs) => awaitUsable(list, { listeners, timeoutMs }),
  }
}

async function awaitUsable(
  list: () => readonly Seat[],
  { listeners, timeoutMs }: { readonly listeners: Set<() => void>; readonly timeoutMs: number },
): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const look = () => {
    if (list().some(({ state }) => isUsable(state))) resolve(true)
    else if (list().every(({ phase }) => phase === 'refused')) resolve(false)
  }
  listeners.add(look)
  const timer = setTimeout(() => resolve(false), timeoutMs)
  look()
  return promise.finally(() => {
    clearTimeout(timer)
    listeners.delete(look)
  })
}

async function endSeat(seat: Seat): Promise<void> {
  await seat.stopWatching()
  await seat.stopFollowing()
  await seat.client.close()
}
