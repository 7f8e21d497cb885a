import type { Identity } from '../../enclave/protocol/messages.ts'
import { createEnclaveCommits, type EnclaveCommits } from '../verified/enclave-commits.ts'
import type { RecordsStore } from '../verified/records-store.ts'
import {
  type AttestingEnclave,
  fetchDocument,
  findAttesting,
  type ServedNotary,
  servedNotaries,
} from './attesting.ts'
import { createEnclaveCalls, type EnclaveCalls, noneInUse, seekUsable } from './calls.ts'
import type { Seat, SeatOptions } from './seat.ts'
import { openSeats, type SeatBoard } from './seat-board.ts'
import { isUsable, SEAT_PHASES, type SeatPhase } from './seat-state.ts'

/** A seat as the operator sees it. */
export type SeatDescription = {
  /** Path of its socket, by which it is named. */
  readonly socketPath: string
  readonly state: SeatPhase
  readonly notary: string | null
  /** Calls in flight. */
  readonly calls: number
  /** Leaves of its log in the database; null while it is not followed. */
  readonly committed: number | null
  /** Why it is refused or out of reach; else empty. */
  readonly fault: string
}

/** All enclaves of the gateway, as one. */
export type Enclaves = EnclaveCalls &
  Omit<SeatBoard, 'list'> & {
    readonly commits: EnclaveCommits
    /** The enclave of this notary, or, with null, one that is in use. Null when there is none; throws EnclaveError when none is in use. */
    attesting(notary: string | null): Promise<AttestingEnclave | null>
    /** A current attestation document, standard base64, asked for anew. Throws EnclaveError when no enclave in use gives one. */
    document(): Promise<string>
    /** Notaries whose enclaves answer: those in use, and those that are being drained. */
    notaries(): readonly ServedNotary[]
    /** What the enclaves in use said last of themselves. */
    identities(): readonly Identity[]
    /** How many seats are in each state, with those that none is in. */
    countStates(): ReadonlyMap<SeatPhase, number>
    list(): readonly SeatDescription[]
    /** Checks every enclave anew: what is accepted may have changed. */
    recheck(): Promise<void>
    /** Ends all watching; logs are followed on. */
    stopWatching(): Promise<void>
    /** Commits what is sealed, and follows no more. */
    stopFollowing(): Promise<void>
    /** Ends all connections. */
    close(): Promise<void>
  }

export type EnclavesOptions = {
  /** Paths that seats are opened for at once. */
  readonly socketPaths: readonly string[]
  readonly seatOf: (socketPath: string) => SeatOptions
  readonly records: Pick<RecordsStore, 'findByIndex'>
}

/** Opens the seats, and begins to watch them. */
export function openEnclaves({ socketPaths, seatOf, records }: EnclavesOptions): Enclaves {
  const { list: listSeats, ...board } = openSeats(socketPaths, seatOf)

  async function findUsable(): Promise<readonly Seat[]> {
    const listUsable = () => listSeats().filter(({ state }) => isUsable(state))
    if (listUsable().length === 0) await seekUsable(listSeats())
    return listUsable()
  }

  return {
    ...board,
    ...createEnclaveCalls(listSeats),
    commits: createEnclaveCommits(listSeats, records),
    attesting: async (notary) => {
      if (notary !== null) return findAttesting(listSeats(), notary)
      const [seat] = await findUsable()
      if (seat === undefined) throw noneInUse(listSeats())
      return seat.attesting()
    },
    document: async () => fetchDocument(await findUsable()),
    notaries: () => servedNotaries(listSeats()),
    identities: () =>
      listSeats().flatMap(({ state, identity }) => (isUsable(state) && identity ? [identity] : [])),
    countStates: () => countStates(listSeats()),
    list: () => listSeats().map(describe),
    recheck: () => forAll(listSeats(), (seat) => seat.look()),
    stopWatching: () => forAll(listSeats(), (seat) => seat.stopWatching()),
    stopFollowing: () => forAll(listSeats(), (seat) => seat.stopFollowing()),
    close: () => forAll(listSeats(), (seat) => seat.client.close()),
  }
}

async function forAll(seats: readonly Seat[], run: (seat: Seat) => Promise<void>): Promise<void> {
  await Promise.all(seats.map(run))
}

function countStates(seats: readonly Seat[]): ReadonlyMap<SeatPhase, number> {
  return new Map(SEAT_PHASES.map((phase) => [phase, seats.filter((seat) => seat.phase === phase).length]))
}

function describe(seat: Seat): SeatDescription {
  const { socketPath, phase, state } = seat
  return {
    socketPath,
    state: phase,
    notary: state.notary,
    calls: state.calls,
    committed: seat.committer?.status().size ?? (state.isSettled ? (seat.identity?.log.size ?? null) : null),
    fault: seat.describeFault(),
  }
}
