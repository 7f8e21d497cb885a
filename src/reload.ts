import type { AdminLog } from './accounts/admin-log-store.ts'
import { chooseTiers, type Tiers } from './accounts/limits/tiers.ts'
import { type Prices, readPrices } from './accounts/prices.ts'
import type { Operator } from './api/context.ts'
import type { GatewayConfig } from './config.ts'
import type { Logger } from './observability/logger.ts'
import { ConfigurationError } from './runtime/read-settings.ts'
import { createSerialQueue } from './runtime/serial-queue.ts'
import { StartFailure } from './runtime/starting.ts'
import type { UpstreamConfig } from './upstream/settings.ts'

/** Settings that SIGHUP reads again while the gateway runs. */
export type Reloadable = {
  readonly tiers: Tiers
  readonly prices: Prices
  /** The operator's credentials, by provider name in the enclaves' table. */
  readonly credentials: ReadonlyMap<string, string>
  /** The services that the gateway itself calls. A reload changes only their keys. */
  readonly upstream: Pick<UpstreamConfig, UpstreamName>
}

const UPSTREAM_NAMES = ['embeddings', 'images', 'search'] as const
type UpstreamName = (typeof UPSTREAM_NAMES)[number]

/**
 * Reads the files that a configuration names. Rejects with StartFailure, which reports every fault
 * in them.
 */
export async function readReloadable(
  config: Pick<
    GatewayConfig,
    'tiersFile' | 'pricesFile' | 'isProduction' | 'credentials' | 'upstream'
  >,
  own: { readonly tiers?: Tiers } = {},
): Promise<Reloadable> {
  return {
    tiers: own.tiers ?? (await chooseTiers(config.tiersFile, config)),
    prices: await readPrices(config.pricesFile),
    credentials: config.credentials,
    upstream: config.upstream,
  }
}

/** The settings that are in use. */
export type Settings = {
  /** A call reads this once, and uses the same settings until the call ends. */
  current(): Reloadable
  /** These functions return members of `current()`. */
  readonly tiers: () => Tiers
  readonly prices: () => Prices
  readonly credentials: () => ReadonlyMap<string, string>
  /** Returns the service as configured at the start, with the key from `current()`. */
  upstream<Name extends UpstreamName>(name: Name): UpstreamConfig[Name]
  /**
   * Reads all settings again. If none has a fault, puts all of them into use. Several reloads run
   * one after another. Resolves to true if the new settings are in use. Faults are logged.
   */
  reload(): Promise<boolean>
  /** `isReloaded`: the last reload succeeded. `reloadedAt`: last success or start, Unix seconds. */
  status(): { readonly isReloaded: boolean; readonly reloadedAt: number }
}

const SIGNAL: Operator = { who: 'operator', accountId: null, from: 'signal' }

/**
 * Opens the settings with their first values. New settings are put into use only if the
 * administrative log can record the reload.
 */
export function openSettings({
  first,
  read,
  adminLog,
  log,
  now,
}: {
  readonly first: Reloadable
  /** Reads the settings. A rejection's message is for the operator and contains no secret. */
  readonly read: () => Promise<Reloadable>
  readonly adminLog: Pick<AdminLog, 'append'>
  readonly log: Pick<Logger, 'info' | 'error'>
  /** Unix milliseconds. */
  readonly now: () => number
}): Settings {
  const queue = createSerialQueue()
  let current = first
  let isReloaded = true
  let reloadedAt = now() / 1000

  async function reload(): Promise<boolean> {
    try {
      const next = await read()
      const changed = changesOf(current, next)
      await adminLog.append(SIGNAL, {
        kind: 'settings.reload',
        target: 'settings',
        details: changed,
      })
      current = next
      isReloaded = true
      reloadedAt = now() / 1000
      log.info(changed, 'settings read again')
    } catch (error) {
      isReloaded = false
      const faults = faultsOf(error)
      log.error(faults ?? { err: error }, 'settings not read again: everything stays as it was')
      // If the database fails, only the log line above reports the refusal.
      const refused = { kind: 'settings.reload', target: 'settings', outcome: 'refused' }
      if (faults !== null) await adminLog.append(SIGNAL, refused).catch(() => undefined)
    }
    return isReloaded
  }

  return {
    current: () => current,
    tiers: () => current.tiers,
    prices: () => current.prices,
    credentials: () => current.credentials,
    upstream(name) {
      const readKey = () => current.upstream[name]?.apiKey ?? null
      const service = first.upstream[name]
      return (
        service &&
        Object.defineProperty({ ...service }, 'apiKey', { enumerable: true, get: readKey })
      )
    },
    reload: () => queue.run(reload),
    status: () => ({ isReloaded, reloadedAt }),
  }
}

/**
 * Returns the faults that the operator can correct in a setting or a file. Null for other errors.
 */
function faultsOf(error: unknown): { readonly faults: readonly string[] } | null {
  if (error instanceof ConfigurationError) return { faults: error.faults }
  if (error instanceof StartFailure) return { faults: error.message.split('\n') }
  return null
}

/** Returns what changed. For keys, returns only the names of their providers. */
function changesOf(before: Reloadable, next: Reloadable) {
  const names = new Set([...before.credentials.keys(), ...next.credentials.keys()])
  const keys = [...names].filter((it) => before.credentials.get(it) !== next.credentials.get(it))
  const keyOf = ({ upstream }: Reloadable, name: UpstreamName) => upstream[name]?.apiKey ?? null
  const upstream = UPSTREAM_NAMES.filter((name) => keyOf(before, name) !== keyOf(next, name))
  return {
    tiers: textOf(before.tiers) === textOf(next.tiers) ? 'same' : 'changed',
    prices: textOf(before.prices) === textOf(next.prices) ? 'same' : 'changed',
    provider_keys: [...keys, ...upstream].toSorted(),
  }
}

function textOf(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) => {
    if (member instanceof Map) return [...member]
    return typeof member === 'bigint' ? String(member) : member
  })
}
