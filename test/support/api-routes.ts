import type { Route } from '../../src/api/route.ts'
import { startGateway } from './gateway.ts'

const gateway = await startGateway()
await gateway.stop()

/** Every route of a gateway that the documentation has; its gateway is stopped. */
export const ROUTES: readonly Route[] = gateway.app.routes.filter(
  ({ tag }) => tag !== 'Pages' && tag !== 'Reference',
)
