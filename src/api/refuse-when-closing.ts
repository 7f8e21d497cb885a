import type { ApiMiddleware } from './context.ts'
import { ApiError } from './errors.ts'

/** Refuses calls that come over open connections while the process stops, and has those connections closed. */
export function refuseWhenClosing(isClosing: () => boolean): ApiMiddleware {
  return (context, next) => {
    if (!isClosing()) return next()
    context.set('connection', 'close')
    throw new ApiError('shutting_down', 'This instance is shutting down, try again')
  }
}
