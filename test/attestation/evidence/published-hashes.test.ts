import { judgePublished } from '../judge-published.ts'

judgePublished(/^bundle\/(created|hash|public|receipt\/|request-|response|signature)/, 20)
