import { encodeHex, equalBytes, sha256 } from '../../bytes.ts'
import {
  blockedBy,
  createProviderChecks,
  type Established,
  established,
  type NotMade,
  type ProviderCheck,
  type ProviderChecks,
  waived,
} from '../provider-checks.ts'
import type { TdxBody } from '../tdx/quote.ts'
import { checkConfigId, type LoggedApplication } from './config-id.ts'
import { DSTACK_CHECKS, type DstackCheckName, dstackFault } from './dstack-codes.ts'
import {
  type DstackPolicy,
  type ResolvedDstackPolicy,
  resolveDstackPolicy,
} from './dstack-policy.ts'
import { parseEventLog, replayRegisters, type SystemEvents, systemEventsOf } from './event-log.ts'
import { checkImageRelease, matchImage } from './os-image.ts'

/** All members but `body` are attacker-controlled. */
export type DstackEvidence = {
  /** From verifyTdxQuote, for a quote whose signature is valid. */
  readonly body: TdxBody
  /** JSON. */
  readonly eventLog: Uint8Array
  /** The exact text of app_compose. Null if the service gave no text. */
  readonly appCompose: Uint8Array | null
  /** The document of MRCONFIGID form 3. Null if the service gave no document. */
  readonly configDocument: Uint8Array | null
}

/** A fact is null if it was not logged or if its check did not pass. */
type DstackFacts = LoggedApplication & {
  /** SHA-256 of the checksums of the image that the measurements prove. */
  readonly osImageHash: Uint8Array | null
}

/** `facts` is null unless the replay equals the quote. */
export type DstackJudgement = {
  readonly facts: DstackFacts | null
  readonly checks: readonly ProviderCheck<DstackCheckName>[]
}

/**
 * Judges the event log of a dstack machine against its verified quote: all checks of rules.md, in
 * their order. Accept the evidence only if `requireChecks(checks)` returns.
 *
 * The log proves which application the OS image started, as far as that image is trusted: without
 * accepted `images`, another OS can log anything. Throws only PolicyError, for a fault in the call.
 *
 * @example
 * const { facts, checks } = await verifyDstackLog(
 *   { body, eventLog, appCompose, configDocument: null },
 *   { composeHashes: [composeHash], images },
 * )
 * requireChecks(checks)
 */
export async function verifyDstackLog(
  { body, eventLog, appCompose, configDocument }: DstackEvidence,
  policy: DstackPolicy,
): Promise<DstackJudgement> {
  const demanded = resolveDstackPolicy(policy)
  const checks = createProviderChecks(DSTACK_CHECKS)
  const { make } = checks
  const parsed = await make('event log', () => {
    const events = parseEventLog(eventLog)
    return established(events, `${events.length} events`)
  })
  const events = await make('register replay', () => {
    if (parsed === null) return blockedBy('event log')
    const odd = replayRegisters(parsed).findIndex(
      (value, index) => !equalBytes(value, body.rtmrs[index] ?? new Uint8Array()),
    )
    if (odd >= 0) throw dstackFault('register_mismatch', `expected events that give RTMR${odd}`)
    return established(parsed)
  })
  const logged = await make('system events', () => {
    if (events === null) return blockedBy('register replay')
    const system = systemEventsOf(events)
    return established({ system, app: applicationOf(system) }, [...system.keys()].join(', '))
  })
  await checkApplication(checks, { app: logged?.app, appCompose, demanded })
  await make('configuration id', () =>
    logged
      ? checkConfigId(body.mrConfigId, logged.app, configDocument)
      : blockedBy('system events'),
  )
  const osImageHash = await judgeImage(checks, { body, system: logged?.system, demanded })
  return { facts: logged && { ...logged.app, osImageHash }, checks: checks.list() }
}

type Checks = ProviderChecks<DstackCheckName>

function applicationOf(system: SystemEvents): LoggedApplication {
  return {
    composeHash: eventOf(system, 'compose-hash', 32),
    appId: eventOf(system, 'app-id', 20),
    keyProvider: system.get('key-provider') ?? null,
  }
}

function eventOf(system: SystemEvents, name: string, bytes: number): Uint8Array {
  const payload = system.get(name)
  if (!payload)
    throw dstackFault('system_event_missing', `expected an event ${name} before system-ready`)
  if (payload.length !== bytes)
    throw dstackFault('system_event_malformed', `expected ${bytes} bytes in the event ${name}`)
  return payload
}

async function checkApplication(
  { make }: Checks,
  {
    app,
    appCompose,
    demanded: { composeHashes, appIds },
  }: {
    readonly app: LoggedApplication | undefined
    readonly appCompose: Uint8Array | null
    readonly demanded: ResolvedDstackPolicy
  },
): Promise<void> {
  await make('compose hash', (): Established<true> | NotMade => {
    if (!app) return blockedBy('system events')
    if (appCompose !== null && !equalBytes(sha256(appCompose), app.composeHash))
      throw dstackFault('compose_mismatch', 'expected the app_compose that was logged')
    if (composeHashes === 'any') return waived('any application is accepted')
    if (!includes(composeHashes, app.composeHash))
      throw dstackFault('compose_not_accepted', 'expected an accepted compose hash')
    return established(true, encodeHex(app.composeHash))
  })
  await make('application id', (): Established<true> | NotMade => {
    if (!app) return blockedBy('system events')
    if (appIds === null) return waived('no application id was asked for')
    if (!includes(appIds, app.appId))
      throw dstackFault('app_id_not_accepted', 'expected an accepted application id')
    return established(true, encodeHex(app.appId))
  })
}

function includes(list: readonly Uint8Array[], value: Uint8Array): boolean {
  return list.some((one) => equalBytes(one, value))
}

async function judgeImage(
  { make }: Checks,
  {
    body,
    system,
    demanded,
  }: {
    readonly body: TdxBody
    readonly system: SystemEvents | undefined
    readonly demanded: ResolvedDstackPolicy
  },
): Promise<Uint8Array | null> {
  const image = await make('OS image', () =>
    system
      ? matchImage(body, system.get('os-image-hash') ?? null, demanded)
      : blockedBy('system events'),
  )
  await make('OS image release', () => {
    if (image !== null) return checkImageRelease(image, demanded)
    return demanded.images === 'any' ? waived('any image is accepted') : blockedBy('OS image')
  })
  return image && sha256(image.checksums)
}
