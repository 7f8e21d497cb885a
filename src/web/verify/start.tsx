import './verify.css'
import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentExpectations } from './development-expectations.ts'
import { fillInWorker } from './start-worker.ts'
import { VerifyPage } from './verify-page.tsx'

void takeDevelopmentExpectations(fillInWorker).then(() => showPage(<VerifyPage />))
