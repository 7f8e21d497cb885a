import { readFile } from 'node:fs/promises'
import { connect, credsAuthenticator, type NatsConnection } from '@nats-io/transport-node'
import { readServerAddresses } from './server-addresses.ts'
import type { BusConfig } from './settings.ts'

/** Two pings without an answer, and at the third: the server hangs. */
const PING_INTERVAL_MS = 2_000
const CONNECT_TIMEOUT_MS = 5_000
const RECONNECT_PAUSE_MS = 250

/**
 * Connects to the servers, for the gateway `id`. The client connects again by itself, and reports
 * that, as long as the connection is not closed here.
 */
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
    // What a gateway publishes to all, and asks of others, is for others.
    noEcho: true,
    timeout: CONNECT_TIMEOUT_MS,
    pingInterval: PING_INTERVAL_MS,
    reconnectTimeWait: RECONNECT_PAUSE_MS,
    maxReconnectAttempts: -1,
    ignoreAuthErrorAbort: true,
  })
}
