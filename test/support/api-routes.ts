import type { Route } from '#src/api/route.ts'
import { startGateway } from './gateway.ts'

// The gateway is stopped: its routes are there to be read.
const gateway = await startGateway()
await gateway.stop()

/** Every route of the public port that the documentation has. */
export const ROUTES: readonly Route[] = gateway.app.routes.filter(
  ({ tag }) => tag !== 'Pages' && tag !== 'Reference',
)

/** Every route of the control socket. */
export const CONTROL_ROUTES: readonly Route[] = gateway.routes.filter(
  ({ scope }) => scope === 'admin' || scope === 'operator',
)
