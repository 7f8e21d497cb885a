import type { ServerResponse } from 'node:http'

/** Of a call whose connection closed before any answer went out: nobody is told it. nginx's convention, in no standard. */
export const CALLER_LEFT_STATUS = 499

/** Status of a call that is over, for whoever reports it. What was never sent has none: Koa's 404, which it begins with, is no answer. */
export function reportedStatusOf({ headersSent, statusCode }: ServerResponse): number {
  return headersSent ? statusCode : CALLER_LEFT_STATUS
}
