import pg from 'pg'
import { backOffMs } from '../runtime/back-off.ts'
import { createLoop } from '../runtime/loop.ts'

/** The gateways of one database send notices here. */
export const NOTICE_CHANNEL = 'affidavit'

/** Time between two checks that the server answers. */
const HEARTBEAT_MS = 1_000
const ANSWER_TIMEOUT_MS = 3_000
const BACKOFF = { minMs: 100, maxMs: 2_000 }

type SessionSubscriber = {
  /** Called with each notice of a gateway on this database, including this process's own. */
  onNotice(payload: string): void
  /**
   * Called when the connection was opened or lost. A loss ends all locks, and notices can be lost.
   */
  onChange(): void
}

/**
 * A separate connection for notices, and for locks that end with this process. A broken connection
 * is opened again. A lock may be lost, and a notice may never arrive.
 */
export type DatabaseSession = {
  /** The first subscriber opens the connection. Returns a function that ends the subscription. */
  subscribe(subscriber: SessionSubscriber): () => void
  isUp(): boolean
  /** Returns false if another session has the lock, or while there is no connection. */
  tryLock(name: string): Promise<boolean>
  /** Releases the lock, then sends a notice. Does nothing while there is no connection. */
  unlock(name: string, notice: string): Promise<void>
  close(): Promise<void>
}

/** Returns a session that is not connected yet. */
export function createPostgresSession(
  url: string,
  onConnectionError: (error: Error) => void,
): DatabaseSession {
  const subscribers = new Set<SessionSubscriber>()
  let client: pg.Client | null = null
  let failures = 0

  function lose(lost: pg.Client, error: Error | null): void {
    void lost.end().catch(() => undefined)
    if (client !== lost) return
    client = null
    if (error !== null) onConnectionError(error)
    for (const subscriber of subscribers) subscriber.onChange()
    rounds.wake()
  }

  async function open(): Promise<void> {
    const opened = new pg.Client({
      connectionString: url,
      application_name: 'affidavit-session',
      connectionTimeoutMillis: ANSWER_TIMEOUT_MS,
      query_timeout: ANSWER_TIMEOUT_MS,
      keepAlive: true,
    })
    opened.on('error', (error) => lose(opened, error))
    opened.on('end', () => lose(opened, null))
    opened.on('notification', ({ payload = '' }) => {
      for (const subscriber of subscribers) subscriber.onNotice(payload)
    })
    try {
      await opened.connect()
      await opened.query(`listen ${NOTICE_CHANNEL}`)
    } catch (error) {
      void opened.end().catch(() => undefined)
      throw error
    }
    client = opened
    for (const subscriber of subscribers) subscriber.onChange()
  }

  /** Returns null while there is no connection. Also returns null when the connection breaks. */
  async function ask<Row>(text: string, values: readonly string[]): Promise<Row | null> {
    const asked = client
    if (asked === null) return null
    try {
      const { rows } = await asked.query(text, [...values])
      return (rows[0] as Row | undefined) ?? null
    } catch (error) {
      lose(asked, error instanceof Error ? error : null)
      return null
    }
  }

  const rounds = createLoop(async () => {
    try {
      if (client === null) await open()
      else await ask('select 1', [])
      failures = 0
      return HEARTBEAT_MS
    } catch {
      // Not logged here, because other parts that need the database report this fault.
      failures += 1
      return backOffMs(failures, BACKOFF, { jitter: 'half' })
    }
  })

  return {
    subscribe(subscriber) {
      subscribers.add(subscriber)
      rounds.start()
      return () => subscribers.delete(subscriber)
    },
    isUp: () => client !== null,
    async tryLock(name) {
      const row = await ask<{ locked: boolean }>(
        'select pg_try_advisory_lock(hashtextextended($1, 0)) as locked',
        [name],
      )
      return row?.locked ?? false
    },
    async unlock(name, notice) {
      await ask('select pg_advisory_unlock(hashtextextended($1, 0)), pg_notify($2, $3)', [
        name,
        NOTICE_CHANNEL,
        notice,
      ])
    },
    async close() {
      await rounds.stop()
      const last = client
      client = null
      await last?.end().catch(() => undefined)
    },
  }
}
