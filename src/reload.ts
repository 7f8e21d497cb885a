import type { AdminLog } from './accounts/admin-log-store.ts'
import { chooseTiers, type Tiers } from './accounts/limits/tiers.ts'
import { type Prices, readPrices } from './accounts/prices.ts'
import type { Operator } from './api/control-operations.ts'
import type { GatewayConfig } from './config.ts'
import type { Logger } from './observability/logger.ts'
import { ConfigurationError } from './runtime/read-settings.ts'
import { createSerialQueue } from './runtime/serial-queue.ts'
import { StartFailure } from './runtime/starting.ts'

/** Settings that are read again while the gateway runs. */
export type Reloadable = {
  readonly tiers: Tiers
  readonly prices: Prices
  /** The operator's, by the enclaves' names of providers. */
  readonly credentials: ReadonlyMap<string, string>
  /** Keys of the services that the gateway itself calls; null for a service without a key. */
  readonly upstreamKeys: Readonly<Record<UpstreamName, string | null>>
}

type UpstreamName = 'embeddings' | 'images' | 'search'

/**
 * Reads the files that a configuration names. Rejects with StartFailure, which reports every fault
 * of the file.
 */
export async function readReloadable(
  config: Pick<
    GatewayConfig,
    'tiersFile' | 'pricesFile' | 'isProduction' | 'credentials' | 'upstream'
  >,
  own: { readonly tiers?: Tiers } = {},
): Promise<Reloadable> {
  const { embeddings, images, search } = config.upstream
  return {
    tiers: own.tiers ?? (await chooseTiers(config.tiersFile, config)),
    prices: await readPrices(config.pricesFile),
    credentials: config.credentials,
    upstreamKeys: {
      embeddings: embeddings?.apiKey ?? null,
      images: images?.apiKey ?? null,
      search: search?.apiKey ?? null,
    },
  }
}

/** The settings that are in use. */
type Settings = {
  /** Asked once by each call, which ends under what it began with. */
  current(): Reloadable
  /**
   * Reads all again, and takes all of it into use or, when anything is at fault, nothing. Several
   * at once are one after another. Gives whether it was taken into use; faults are logged.
   */
  reload(): Promise<boolean>
  /** Of the last reload, or the start; Unix seconds. */
  status(): { readonly isReloaded: boolean; readonly reloadedAt: number }
}

const SIGNAL: Operator = { who: 'operator', accountId: null, from: 'signal' }

/**
 * Opens the settings over the first that were read. A reload that cannot be recorded in the
 * administrative log is not taken into use.
 */
export function openSettings({
  first,
  read,
  adminLog,
  log,
  now,
}: {
  readonly first: Reloadable
  /** Rejects with an error whose message is for the operator, and has no secret. */
  readonly read: () => Promise<Reloadable>
  readonly adminLog: Pick<AdminLog, 'record'>
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
      await adminLog.record(SIGNAL, {
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
      // While the database is away the refusal cannot be recorded; the line above reports it.
      const refused = { kind: 'settings.reload', target: 'settings', outcome: 'refused' }
      if (faults !== null) await adminLog.record(SIGNAL, refused).catch(() => undefined)
    }
    return isReloaded
  }

  return {
    current: () => current,
    reload: () => queue.run(reload),
    status: () => ({ isReloaded, reloadedAt }),
  }
}

/** Those of a setting or a file, which are the operator's to mend; null for anything else. */
function faultsOf(error: unknown): { readonly faults: readonly string[] } | null {
  if (error instanceof ConfigurationError) return { faults: error.faults }
  if (error instanceof StartFailure) return { faults: error.message.split('\n') }
  return null
}

/** What is other than before: of keys the names alone. */
function changesOf(before: Reloadable, next: Reloadable) {
  const names = new Set([...before.credentials.keys(), ...next.credentials.keys()])
  const keys = [...names].filter((it) => before.credentials.get(it) !== next.credentials.get(it))
  const upstream = (['embeddings', 'images', 'search'] as const).filter(
    (name) => before.upstreamKeys[name] !== next.upstreamKeys[name],
  )
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
