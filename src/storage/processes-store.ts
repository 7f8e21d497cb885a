import { sql } from 'kysely'
import { clockArgument, clockSeconds, type StoreClock } from './clock.ts'
import type { Database } from './database.ts'

/**
 * The gateways that are alive, each under an id of its own. Every method throws the driver's error
 * when the database fails.
 */
export type ProcessesStore = {
  /** Records a process, alive for so long from now. */
  enter(id: string, leaseSeconds: number): Promise<void>
  /**
   * Prolongs a process's life. False when it was over already: others may have taken it for dead.
   */
  renew(id: string, leaseSeconds: number): Promise<boolean>
  /** Ends a process's life: what it reserved is given back with the next `expire`. */
  leave(id: string): Promise<void>
  /** Ends the lives of all processes: for a process that knows it is alone with the database. */
  leaveAll(): Promise<void>
  /**
   * Forgets the processes whose lives are over, and gives back what they had reserved. Gives how
   * many they were.
   */
  expire(): Promise<number>
}

/** Processes on the database's shared connections. */
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
