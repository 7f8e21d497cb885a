import { readFile } from 'node:fs/promises'
import { connect, credsAuthenticator, type NatsConnection } from '@nats-io/transport-node'
import { readServerAddresses } from './server-addresses.ts'
import type { BusConfig } from './settings.ts'

/** The server counts as hung when the third ping is due and two have no answer. */
const PING_INTERVAL_MS = 2_000
const CONNECT_TIMEOUT_MS = 5_000
const RECONNECT_PAUSE_MS = 250

/** The client reconnects by itself until this gateway closes the connection. */
export async function connectBus(
  { servers: addresses, credentialsFile, caFile, subjectPrefix }: BusConfig,
  id: string,
): Promise<NatsConnection> {
  const { servers, login, needsTls } = readServerAddresses(addresses)
  return connect({
    ...(caFile !== null ? { tls: { caFile } } : needsTls ? { tls: {} } : {}),
    ...login,
    ...(credentialsFile === null
      ? {}
      : { authenticator: credsAuthenticator(await readFile(credentialsFile)) }),
    servers: [...servers],
    name: `affidavit gateway ${id}`,
    inboxPrefix: `${subjectPrefix}.inbox.${id}`,
    // A gateway's messages and questions are for other gateways, not for itself.
    noEcho: true,
    timeout: CONNECT_TIMEOUT_MS,
    pingInterval: PING_INTERVAL_MS,
    reconnectTimeWait: RECONNECT_PAUSE_MS,
    maxReconnectAttempts: -1,
    ignoreAuthErrorAbort: true,
  })
}
