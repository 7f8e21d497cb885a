import { resolve } from 'node:path'
import type { z } from 'zod'
import { confidential, flag, form, listField, textField } from '../runtime/fields.ts'
import type { Environment } from '../runtime/read-settings.ts'
import { readServerAddresses, serverAddressFaults } from './server-addresses.ts'

/** The client needs only a few servers of a cluster, because they report the others. */
const SERVERS_MAX = 16

/** Variables of the bus between gateways; part of src/config.ts. */
export const BUS_FIELDS = {
  /**
   * NATS servers of one cluster, comma-separated:
   * `tls://user:password@nats-1:4222,tls://user:password@nats-2:4222`. `token@` is another form of
   * login. One login applies to all servers. `tls:` refuses servers without TLS. Gateways of one
   * service with the same cluster serve each other's callers with their nodes and enclaves.
   * Default: no servers, so a gateway uses only its own nodes and enclaves.
   */
  NATS_URL: confidential(listField({ itemsMax: SERVERS_MAX, lengthMax: 512 })).optional(),
  /**
   * File with a NATS user's JWT and seed, as `nsc` writes it, if the servers require this login.
   */
  NATS_CREDENTIALS_FILE: textField.optional(),
  /**
   * File with root certificates (PEM) for checking the servers. Default: the system's certificates.
   */
  NATS_CA_FILE: textField.optional(),
  /**
   * First word of all subjects. All gateways of a service need the same word. Two services on one
   * NATS account need different words. Default: affidavit.
   */
  NATS_SUBJECT_PREFIX: form(
    /^[A-Za-z0-9_-]{1,64}$/,
    '1 to 64 letters, digits, dashes and underscores',
  ).default('affidavit'),
  /**
   * Whether only the gateways can reach the NATS servers. With true, production accepts servers
   * without TLS and login. The messages contain the prompts of plain calls. Default: false.
   */
  NATS_CLOSED_NETWORK: flag.default(false),
}

type Settings = z.output<z.ZodObject<typeof BUS_FIELDS>>

export type BusConfig = {
  readonly servers: readonly string[]
  /** Absolute path. */
  readonly credentialsFile: string | null
  /** Absolute path. Null selects the system's certificates. */
  readonly caFile: string | null
  readonly subjectPrefix: string
}

/** Returns faults. Their texts contain no address, because an address may contain a password. */
export function busFaults(given: Environment): readonly string[] {
  const servers = given.NATS_URL?.split(',').map((server) => server.trim()) ?? []
  const faults = given.NATS_URL === undefined ? [] : serverAddressFaults(servers)
  return [
    ...faults.map((fault) => `NATS_URL: ${fault}`),
    ...(faults.length === 0 && given.NODE_ENV === 'production' ? openFaults(given, servers) : []),
    ...['NATS_CREDENTIALS_FILE', 'NATS_CA_FILE'].flatMap((name) =>
      given[name] !== undefined && given.NATS_URL === undefined
        ? [`NATS_URL: expected together with ${name}`]
        : [],
    ),
  ]
}

/** Returns a fault if others could read or write the gateways' messages. */
function openFaults(given: Environment, servers: readonly string[]): readonly string[] {
  if (servers.length === 0 || given.NATS_CLOSED_NETWORK === 'true') return []
  const { needsTls, login } = readServerAddresses(servers)
  const hasTls = needsTls || given.NATS_CA_FILE !== undefined
  const hasLogin = login !== null || given.NATS_CREDENTIALS_FILE !== undefined
  const missing = [...(hasTls ? [] : ['TLS (tls://)']), ...(hasLogin ? [] : ['a login'])]
  return missing.length === 0
    ? []
    : [
        `NATS_URL: expected ${missing.join(' and ')} in production, or NATS_CLOSED_NETWORK=true where only the gateways can reach the servers`,
      ]
}

/** The variables must have no faults. Null if the gateway works alone. */
export function busOf(settings: Settings): BusConfig | null {
  const { NATS_URL: servers } = settings
  if (servers === undefined) return null
  const absolute = (path: string | undefined) => (path === undefined ? null : resolve(path))
  return {
    servers,
    credentialsFile: absolute(settings.NATS_CREDENTIALS_FILE),
    caFile: absolute(settings.NATS_CA_FILE),
    subjectPrefix: settings.NATS_SUBJECT_PREFIX,
  }
}
