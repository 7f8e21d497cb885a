import { sql } from 'kysely'
import { clockArgument, clockSeconds, type StoreClock } from './clock.ts'
import type { Database } from './database.ts'

/** The living gateways. Every method throws the driver's error when the database fails. */
export type ProcessesStore = {
  /** Marks a process as alive for `leaseSeconds`. */
  enter(id: string, leaseSeconds: number): Promise<void>
  /** False if the process had expired: other processes may have treated it as dead. */
  renew(id: string, leaseSeconds: number): Promise<boolean>
  /** Makes a process expire at once. The next `expire` releases its reservations. */
  leave(id: string): Promise<void>
  /** Makes all processes expire at once. Call this only when no other process uses the database. */
  leaveAll(): Promise<void>
  /**
   * Releases the reservations of expired processes, and deletes processes that ended 600 s ago.
   * Returns how many processes ended since the last call.
   */
  expire(): Promise<number>
}

export function createProcessesStore(
  { queries }: Pick<Database, 'queries'>,
  clock: StoreClock = null,
): ProcessesStore {
  return {
    async enter(id, leaseSeconds) {
      await sql`
        insert into gateway_processes (id, expires_at) values (${id}, ${clockSeconds(clock)} + ${leaseSeconds})
        on conflict (id) do update set expires_at = excluded.expires_at`.execute(queries)
    },
    async renew(id, leaseSeconds) {
      const { numAffectedRows } = await sql`
        update gateway_processes set expires_at = ${clockSeconds(clock)} + ${leaseSeconds}
        where id = ${id} and expires_at > ${clockSeconds(clock)}`.execute(queries)
      return numAffectedRows === 1n
    },
    async leave(id) {
      await sql`update gateway_processes set expires_at = 0 where id = ${id}`.execute(queries)
    },
    async leaveAll() {
      await sql`update gateway_processes set expires_at = 0`.execute(queries)
    },
    async expire() {
      const { rows } = await sql<{ dead: number }>`
        select expire_gateway_processes(${clockArgument(clock)}) as dead`.execute(queries)
      return rows[0]?.dead ?? 0
    },
  }
}
