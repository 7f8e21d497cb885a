import { chooseProvider } from '../../enclave/protocol/choose-provider.ts'
import type { CompletionCall, EnclaveFaultCode, Identity } from '../../enclave/protocol/messages.ts'
import { chooseSeat } from './choose-seat.ts'
import type { CompletionAnswer } from './enclave-client.ts'
import { EnclaveError } from './enclave-error.ts'
import type { Seat } from './seat.ts'
import { isUsable } from './seat-state.ts'

/** A completion call that any enclave may make, unless it is bound to one. */
export type WantedCall = {
  readonly model: string
  /** The only enclave that may make it, by its notary; null: any. */
  readonly notary: string | null
  /** What is sent to the enclave of this identity. What it throws ends the call. */
  readonly callFor: (identity: Identity) => CompletionCall
}

/** Completion calls, each made by one enclave that is in use. */
export type EnclaveCalls = {
  /**
   * Has an enclave make the call; another one, when the first was sent nothing or took nothing. Throws EnclaveError (with `wasSent`
   * false when no enclave got it), what `callFor` throws, or the signal's reason.
   */
  complete(wanted: WantedCall, body: Uint8Array, signal: AbortSignal): Promise<CompletionAnswer>
  /** Notary of the enclave that would make a call for this model now. Throws EnclaveError when there is none. */
  chooseNotary(model: string): Promise<string>
}

type Wanted = Pick<WantedCall, 'model' | 'notary'>

/** An enclave says these before it does anything for a call. */
const NOT_TAKEN: ReadonlySet<EnclaveFaultCode> = new Set(['not_ready', 'too_busy', 'log_full'])

/** Calls over the seats that `listSeats` gives. */
export function createEnclaveCalls(listSeats: () => readonly Seat[]): EnclaveCalls {
  let chosen = 0

  /** Those that may make the call and were not tried yet. */
  function candidates({ notary }: Wanted, tried: ReadonlySet<Seat>): readonly Seat[] {
    return listSeats().filter((seat) => !tried.has(seat) && (notary === null || seat.state.notary === notary))
  }

  /** The call is to follow at once: what is chosen next has to see it counted. */
  function choose(wanted: Wanted, tried: ReadonlySet<Seat>): Seat | null {
    const choices = candidates(wanted, tried).map((seat) => describe(seat, wanted.model))
    const seat = chooseSeat(choices)?.seat ?? null
    chosen += 1
    if (seat !== null) seat.chosenAt = chosen
    return seat
  }

  /** The same, when none is usable: throws EnclaveError when that stays so. */
  async function seek(wanted: Wanted): Promise<Seat> {
    await seekUsable(candidates(wanted, new Set()))
    const seat = choose(wanted, new Set())
    if (seat === null) throw noneInUse(listSeats())
    return seat
  }

  return {
    async complete(wanted, body, signal) {
      const tried = new Set<Seat>()
      let seat = choose(wanted, tried) ?? (await seek(wanted))
      for (;;) {
        tried.add(seat)
        const outcome = await attempt(seat, { wanted, body, signal })
        const next = isRetryable(outcome) && wanted.notary === null ? choose(wanted, tried) : null
        if (next === null) return answerOf(outcome)
        seat = next
      }
    },
    async chooseNotary(model) {
      const wanted = { model, notary: null }
      return identityOf(choose(wanted, new Set()) ?? (await seek(wanted))).notary
    },
  }
}

type Outcome =
  | { readonly kind: 'answer'; readonly answer: CompletionAnswer }
  | { readonly kind: 'error'; readonly error: unknown }

async function attempt(
  seat: Seat,
  call: { readonly wanted: WantedCall; readonly body: Uint8Array; readonly signal: AbortSignal },
): Promise<Outcome> {
  const { wanted, body, signal } = call
  const ask = () => seat.complete(wanted.callFor(identityOf(seat)), body, signal)
  try {
    const answer = await ask()
    if (answer.kind !== 'fault' || answer.fault.code !== 'provider_mismatch')
      return { kind: 'answer', answer }
    // The table of providers that the credential was chosen by was an older one.
    await seat.look()
    return { kind: 'answer', answer: isUsable(seat.state) ? await ask() : answer }
  } catch (error) {
    return { kind: 'error', error }
  }
}

function answerOf(outcome: Outcome): CompletionAnswer {
  if (outcome.kind === 'answer') return outcome.answer
  throw outcome.error
}

/** Whether the enclave began nothing for the call. */
function isRetryable(outcome: Outcome): boolean {
  if (outcome.kind === 'error') return outcome.error instanceof EnclaveError && !outcome.error.wasSent
  return outcome.answer.kind === 'fault' && NOT_TAKEN.has(outcome.answer.fault.code)
}

/** Looks at seats of which none is usable: an enclave may be back, and callers find that out first. */
export async function seekUsable(seats: readonly Seat[]): Promise<void> {
  const looks = seats
    .filter(({ state }) => state.order === 'serve')
    .map(async (seat) => {
      await seat.look()
      if (!isUsable(seat.state)) throw new Error('expected the enclave to be usable')
    })
  // The first that is usable will do; the others may hang.
  await Promise.any(looks).catch(() => undefined)
}

/** Why there is no enclave for a call: as the first of them says, when there are any. Nothing was sent. */
export function noneInUse(seats: readonly Seat[]): EnclaveError {
  const error = seats.map(({ lastError }) => lastError).find((fault) => fault instanceof EnclaveError)
  if (error !== undefined) return new EnclaveError(error.code, error.message, error.fault, { wasSent: false })
  return new EnclaveError('unavailable', 'no enclave is in use', null, { wasSent: false })
}

function describe(seat: Seat, model: string) {
  const { state, chosenAt, identity } = seat
  const status = seat.committer?.status()
  return {
    seat,
    state,
    chosenAt,
    isCommitting: status !== undefined && status.phase !== 'refusing' && status.failingForMs === 0,
    servesCall: identity !== null && chooseProvider(identity.boot_configuration.providers, model) !== null,
  }
}

function identityOf({ identity }: Seat): Identity {
  if (identity === null) throw new TypeError('expected a seat that is usable to have been looked at')
  return identity
}
