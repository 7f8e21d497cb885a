import { randomUUID } from 'node:crypto'
import { expect } from 'vitest'
import { type Bus, startBus } from '#src/bus/bus.ts'
import { judgeAnswer } from '#src/chat/chat-completions.ts'
import type { NodeLimits } from '#src/nodes/runs/limits.ts'
import { createLogger } from '#src/observability/logger.ts'
import { type DrawingStage, openDrawingStage } from './drawing-stage.ts'
import { BUS_KEY } from './nats-server.ts'
import { NOTHING_HELD } from './nodes-stage.ts'
import { until } from './until.ts'

/** A gateway's nodes, on a bus with those of others. */
export type SharingGateway = { readonly bus: Bus; readonly stage: DrawingStage }

/** Opens this many gateways that know each other, on a NATS server. */
export async function openSharing(
  url: string,
  count: number,
  limits: Partial<NodeLimits> = {},
): Promise<readonly SharingGateway[]> {
  const subjectPrefix = `test-${randomUUID()}`
  const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
  const open = async () => {
    const bus = startBus(
      { servers: [url], credentialsFile: null, caFile: null, subjectPrefix },
      { key: BUS_KEY, makeId: randomUUID, now: Date.now, log },
    )
    const options = { bus, judge: judgeAnswer, log }
    return { bus, stage: await openDrawingStage({ waitMs: 5_000, ...limits }, options) }
  }
  const gateways = await Promise.all(Array.from({ length: count }, open))
  await until('they meet', () => gateways.every(({ bus }) => bus.peers().length === count - 1))
  return gateways
}

/** Ends the gateways, and checks that each holds no part of a call. */
export async function closeSharing(gateways: readonly SharingGateway[]): Promise<void> {
  await until('no channel is left', () => gateways.every(({ bus }) => bus.status().channels === 0))
  for (const { bus, stage } of gateways) {
    await stage.close()
    expect(stage.nodes.status()).toMatchObject(NOTHING_HELD)
    await bus.stop()
  }
}
