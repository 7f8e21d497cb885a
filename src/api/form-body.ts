import type { IncomingMessage, ServerResponse } from 'node:http'
import { ApiError } from './errors.ts'
import { boundaryOf, type FormPart, parseMultipart } from './multipart.ts'
import { type BodyLimits, readBody } from './read-body.ts'

/** Parts of a form (RFC 7578), in their order. Throws as readJsonBody, and ValidationError for what is no form. */
export async function readForm(
  request: IncomingMessage,
  response: ServerResponse,
  limits: BodyLimits,
): Promise<readonly FormPart[]> {
  const { headers } = request
  const boundary = boundaryOf(headers['content-type'])
  const isPlain = (headers['content-encoding'] ?? 'identity').toLowerCase() === 'identity'
  if (boundary === null || !isPlain)
    throw new ApiError(
      'unsupported_media_type',
      'Expected content-type multipart/form-data with a boundary, and no content-encoding',
    )
  return parseMultipart(await readBody(request, response, limits), boundary)
}
